//! `conv_weight_gradient`: gradient · columnsᵀ, added up part after part.

use std::ops::Range;

use plimsoll_core::ops::convolution::Geometry;
use plimsoll_core::ops::convolution_tiles::Chunks;
use rayon::prelude::*;

use super::super::matmul::Product;
use super::super::scratch::Scratch;
use super::super::{PIECE, in_pieces};
use super::{Part, columns, direct, parts, side_by_side};
use crate::arena::Memory;

/// A gradient with its memory.
pub struct Task {
    pub geometry: Geometry,
    pub x: Memory,
    pub gradient: Memory,
    pub output: Memory,
    pub workspace: Option<Memory>,
}

/// Columns of the weight's gradient over a slice of the parts.
struct Piece {
    group: usize,
    channels: Range<usize>,
    slice: usize,
}

impl Task {
    pub fn run(&self, threads: usize) {
        let g = &self.geometry;
        if g.is_direct() {
            return direct::weight_gradient(g, self.x, self.gradient, self.output);
        }
        let chunks = g.weight_chunks();
        let Chunks { span, channels, slices } = chunks;
        let numel = g.scratch_numel(span, channels * g.taps(), g.is_pointwise());
        // The partial sums come first, then the threads' scratch memory.
        let first = if slices > 1 { slices * g.weight_numel() } else { 0 };
        let scratch = Scratch { memory: self.workspace, first, numel };
        let mut pieces = Vec::new();
        for group in 0..g.groups {
            for c in (0..g.in_channels).step_by(channels) {
                let channels = c..(c + channels).min(g.in_channels);
                pieces.extend((0..slices).map(|slice| Piece {
                    group,
                    channels: channels.clone(),
                    slice,
                }));
            }
        }
        let threads = if pieces.len() == 1 { threads } else { 1 };
        let sums = |slice: usize| match slices {
            1 => self.output.as_ptr::<f32>(),
            _ => {
                let workspace = self.workspace.expect("slices need workspace");
                assert!(first <= workspace.len::<f32>());
                // SAFETY: just checked to be within the workspace.
                unsafe { workspace.as_ptr::<f32>().add(slice * g.weight_numel()) }
            }
        };
        pieces.par_iter().for_each(|piece| {
            // Pointers are not sent: each piece makes its own.
            self.piece(piece, chunks, &scratch, sums(piece.slice), threads);
        });
        if slices > 1 {
            self.join(slices);
        }
    }

    fn piece(
        &self,
        piece: &Piece,
        chunks: Chunks,
        scratch: &Scratch,
        sums: *mut f32,
        threads: usize,
    ) {
        let g = &self.geometry;
        let (taps, m) = (g.taps(), g.out_channels);
        let (from, to) = (g.input_numel(), g.output_numel());
        let rows = piece.channels.len() * taps;
        let width = g.in_channels * taps;
        // SAFETY: nobody writes to these; scratch memory is this thread's.
        let (x, gradient, scratch) =
            unsafe { (self.x.read::<f32>(), self.gradient.read::<f32>(), scratch.take()) };
        let all: Vec<Part> = parts(g, chunks.span, piece.group).collect();
        let each = all.len().div_ceil(chunks.slices);
        let mine = (piece.slice * each).min(all.len())..((piece.slice + 1) * each).min(all.len());
        let first_plane =
            |item: usize| (item * g.groups + piece.group) * g.in_channels + piece.channels.start;
        if mine.is_empty() {
            // SAFETY: as below.
            (0..m).for_each(|row| unsafe {
                let at = (piece.group * m + row) * width + piece.channels.start * taps;
                std::slice::from_raw_parts_mut(sums.add(at), rows).fill(0.0);
            });
        }
        for (i, part) in all[mine].iter().enumerate() {
            let k = part.columns();
            let one = part.items.len() == 1;
            let (b, b_stride, scratch) = if one && g.is_pointwise() {
                (&x[first_plane(part.items.start) * from + part.windows.start..], to, &mut *scratch)
            } else {
                let (cols, rest) = scratch.split_at_mut(rows * chunks.span.columns());
                for (i, item) in part.items.clone().enumerate() {
                    let input = &x[first_plane(item) * from..][..piece.channels.len() * from];
                    let cols = &mut cols[i * to..];
                    columns::gather(g, input, piece.channels.len(), &part.windows, cols, k);
                }
                (&*cols, k, rest)
            };
            let (a, a_stride) = if one {
                let first = (part.items.start * g.groups + piece.group) * m;
                (&gradient[first * to + part.windows.start..], to)
            } else {
                side_by_side(g, part, gradient, scratch);
                (&*scratch, k)
            };
            let product =
                Product { m, n: rows, k, transpose_a: false, transpose_b: true, accumulate: i > 0 };
            // SAFETY: the sums of the group are [m, channels · taps], of which
            // each piece of a slice has columns of its own.
            unsafe {
                let out = sums.add(piece.group * m * width + piece.channels.start * taps);
                product.run_strided(
                    threads,
                    (a.as_ptr(), a_stride),
                    (b.as_ptr(), b_stride),
                    (out, width),
                );
            }
        }
    }

    /// Adds the slices' sums up, in order.
    fn join(&self, slices: usize) {
        let numel = self.geometry.weight_numel();
        let workspace = self.workspace.expect("slices need workspace");
        // SAFETY: nobody writes to the workspace now.
        let sums = unsafe { workspace.read::<f32>() };
        in_pieces(numel, PIECE, |first, count| {
            // SAFETY: each piece has elements of its own.
            let out = unsafe { self.output.write_part::<f32>(first, count) };
            out.copy_from_slice(&sums[first..][..count]);
            for slice in 1..slices {
                let sums = &sums[slice * numel + first..][..count];
                out.iter_mut().zip(sums).for_each(|(o, s)| *o += s);
            }
        });
    }
}
