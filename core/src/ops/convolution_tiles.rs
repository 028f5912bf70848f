//! How the work of a convolution is cut up: by its shape alone, so that sums
//! never depend on the device or the number of threads.

use super::convolution::Geometry;
use crate::launch::Capabilities;

/// Columns of a product on the CPU below which items are taken together: the
/// weight is read again for each product.
const FEWEST_COLUMNS: usize = 256;
/// Most columns, however few rows they have.
const MOST_COLUMNS: usize = 2048;
/// Elements of the columns of one product on the CPU, about: 1 MiB.
const COLUMNS_NUMEL: usize = 256 << 10;
/// Elements of partial sums of the weight's gradient: 4 MiB.
const PARTIAL_NUMEL: usize = 1 << 20;
/// Pieces of work that are enough for any CPU.
const PIECES: usize = 16;
/// Multiplications for each output element up to which sums are made directly,
/// without a matrix product.
const DIRECT_CHANNELS: usize = 4;

/// A part of the windows: some items, or some windows of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Items taken together; if more than one, all their windows.
    pub items: usize,
    /// Windows of an item taken together.
    pub windows: usize,
}

impl Span {
    /// Windows taken together.
    pub fn columns(self) -> usize {
        self.items * self.windows
    }
}

/// A part of the input's channels and items for a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Which windows are taken together.
    pub span: Span,
    /// Channels of the input taken together.
    pub channels: usize,
    /// Parts of the windows with sums of their own.
    pub slices: usize,
}

impl Geometry {
    /// Whether sums are so short that no matrix product is made of them:
    /// groups of one channel, say.
    pub fn is_direct(&self) -> bool {
        self.in_channels * self.out_channels <= DIRECT_CHANNELS
    }

    /// Windows that one product takes together when each is a column of
    /// `depth` elements.
    fn span(&self, depth: usize) -> Span {
        let count = self.output_numel();
        if count >= FEWEST_COLUMNS || self.batch == 1 {
            let most = (COLUMNS_NUMEL / depth).clamp(FEWEST_COLUMNS, MOST_COLUMNS);
            let tiles = count.div_ceil(most);
            // In eights: edges of vectors are slower.
            let windows = count.div_ceil(tiles).next_multiple_of(8).min(count);
            return Span { items: 1, windows };
        }
        let blocks = self.batch.div_ceil(FEWEST_COLUMNS.div_ceil(count));
        Span { items: self.batch.div_ceil(blocks), windows: count }
    }

    /// The forward pass on the CPU: windows of a product.
    pub fn forward_span(&self) -> Span {
        self.span(self.in_channels * self.taps())
    }

    /// The input's gradient on the CPU.
    pub fn input_chunks(&self) -> Chunks {
        let span = self.span(self.out_channels.max(self.taps()));
        let most = COLUMNS_NUMEL / (span.columns() * self.taps());
        let blocks = self.batch.div_ceil(span.items) * self.groups;
        // Enough pieces for many threads, but channels enough for a product.
        let wanted = self.in_channels.div_ceil(PIECES.div_ceil(blocks));
        let channels =
            most.min(wanted.max(64usize.div_ceil(self.taps()))).clamp(1, self.in_channels);
        Chunks { span, channels, slices: 1 }
    }

    /// The weight's gradient on the CPU.
    pub fn weight_chunks(&self) -> Chunks {
        let fewest = 128usize.div_ceil(self.taps());
        let channels = self.in_channels.div_ceil(4).max(fewest).min(self.in_channels);
        let span = self.span(channels * self.taps());
        let pieces = self.groups * self.in_channels.div_ceil(channels);
        let slices = PIECES
            .div_ceil(pieces)
            .min(self.spans(span))
            .min(PARTIAL_NUMEL / self.weight_numel())
            .max(1);
        Chunks { span, channels, slices }
    }

    /// The number of spans that cover all windows of all items.
    pub fn spans(&self, span: Span) -> usize {
        self.batch.div_ceil(span.items) * self.output_numel().div_ceil(span.windows)
    }

    /// Elements of scratch memory that a thread needs for products of these
    /// columns with `rows` rows: the columns, unless the input serves, and the
    /// channels of the output side by side, where several items are.
    pub fn scratch_numel(&self, span: Span, rows: usize, serves: bool) -> usize {
        let columns = if serves && span.items == 1 { 0 } else { rows * span.columns() };
        let outputs = if span.items == 1 { 0 } else { self.out_channels * span.columns() };
        // Whole cache lines, so that threads do not share any.
        (columns + outputs).next_multiple_of(64)
    }

    /// Workspace of the forward pass.
    pub(super) fn forward_bytes(&self, capabilities: &Capabilities) -> u64 {
        let Some(threads) = capabilities.threads else { return 0 };
        if self.is_direct() {
            return 0;
        }
        let rows = self.in_channels * self.taps();
        let numel = self.scratch_numel(self.forward_span(), rows, self.is_pointwise());
        4 * u64::from(threads) * numel as u64
    }

    /// Workspace of the input's gradient.
    pub(super) fn input_bytes(&self, capabilities: &Capabilities) -> u64 {
        let Some(threads) = capabilities.threads else { return 0 };
        if self.is_direct() {
            return 0;
        }
        let Chunks { span, channels, .. } = self.input_chunks();
        4 * u64::from(threads) * self.scratch_numel(span, channels * self.taps(), false) as u64
    }

    /// Workspace of the weight's gradient: on a GPU partial sums only.
    pub(super) fn weight_bytes(&self, capabilities: &Capabilities) -> u64 {
        let partial = |slices: usize| match slices {
            1 => 0,
            _ => 4 * (slices * self.weight_numel()) as u64,
        };
        let Some(threads) = capabilities.threads else {
            return partial(self.weight_slices());
        };
        if self.is_direct() {
            return 0;
        }
        let Chunks { span, channels, slices } = self.weight_chunks();
        let numel = self.scratch_numel(span, channels * self.taps(), self.is_pointwise());
        4 * u64::from(threads) * numel as u64 + partial(slices)
    }

    /// Parts of the windows that have sums of their own on a GPU, so that it is
    /// busy even if the weight is small.
    pub(super) fn weight_slices(&self) -> usize {
        if self.out_channels < Tile::LEAST_ROWS {
            return 1;
        }
        let tile = Tile::of(self.out_channels);
        let across = (self.in_channels * self.taps()).div_ceil(tile.columns);
        let tiles = self.groups * self.out_channels.div_ceil(tile.rows) * across;
        let longest = (self.batch * self.output_numel()).div_ceil(512);
        (256 / tiles).min(PARTIAL_NUMEL / self.weight_numel()).clamp(1, longest)
    }
}

/// The part of a matrix that a workgroup of 256 invocations computes, 4 × 4
/// elements each, and how much of the sums it brings into workgroup memory at
/// a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub rows: usize,
    pub columns: usize,
    pub step: usize,
}

impl Tile {
    /// Below so many rows each invocation computes one element directly.
    pub const LEAST_ROWS: usize = 8;

    /// The tile for a matrix of so many rows.
    pub fn of(rows: usize) -> Tile {
        match rows {
            0..=16 => Tile { rows: 16, columns: 256, step: 8 },
            _ => Tile { rows: 64, columns: 64, step: 16 },
        }
    }

    pub fn constants(self) -> Vec<(String, u32)> {
        vec![
            ("ROWS".into(), self.rows as u32),
            ("COLUMNS".into(), self.columns as u32),
            ("STEP".into(), self.step as u32),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Convolution;
    use super::*;

    fn geometry(batch: usize, channels: usize, outputs: usize, side: usize, k: usize) -> Geometry {
        let c = Convolution::new(2).padding(&[k / 2, k / 2]);
        let x = [batch, channels, side, side];
        c.geometry("conv", &x, &[outputs, channels, k, k]).expect("fits")
    }

    #[test]
    fn spans_cover_all_windows_evenly() {
        // Large planes are cut, small ones are taken together.
        let g = geometry(8, 64, 64, 56, 3);
        let span = g.forward_span();
        assert_eq!((span, g.spans(span)), (Span { items: 1, windows: 448 }, 56));
        let g = geometry(8, 512, 512, 7, 3);
        let span = g.forward_span();
        assert_eq!((span, g.spans(span)), (Span { items: 4, windows: 49 }, 2));
        let g = geometry(1, 512, 512, 7, 3);
        assert_eq!(g.forward_span(), Span { items: 1, windows: 49 });
    }

    #[test]
    fn workspace_is_bounded() {
        let threads = Capabilities { threads: Some(2), ..Capabilities::PORTABLE };
        for (batch, channels, outputs, side, k) in
            [(8, 3, 64, 224, 7), (8, 2048, 512, 7, 1), (32, 512, 512, 7, 3), (1, 16, 16, 512, 3)]
        {
            let g = geometry(batch, channels, outputs, side, k);
            let bytes = [
                g.forward_bytes(&threads),
                g.input_bytes(&threads),
                g.weight_bytes(&threads),
                g.weight_bytes(&Capabilities::PORTABLE),
            ];
            assert!(bytes.iter().all(|b| *b <= 32 << 20), "{g:?}: {bytes:?}");
        }
    }
}
