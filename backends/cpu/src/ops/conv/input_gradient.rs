//! `conv_input_gradient`: weightᵀ · gradient gives the columns' gradient, which
//! is added up where windows overlap.

use std::ops::Range;

use plimsoll_core::ops::convolution::Geometry;
use plimsoll_core::ops::convolution_tiles::Chunks;
use rayon::prelude::*;

use super::super::matmul::Product;
use super::super::scratch::Scratch;
use super::{columns, direct, parts, side_by_side};
use crate::arena::Memory;

/// A gradient with its memory.
pub struct Task {
    pub geometry: Geometry,
    pub weight: Memory,
    pub gradient: Memory,
    pub output: Memory,
    pub workspace: Option<Memory>,
}

/// Channels of some items, which one thread computes: no other adds to them.
struct Piece {
    group: usize,
    items: Range<usize>,
    channels: Range<usize>,
}

impl Task {
    pub fn run(&self, threads: usize) {
        let g = &self.geometry;
        if g.is_direct() {
            return direct::input_gradient(g, self.weight, self.gradient, self.output);
        }
        let chunks = g.input_chunks();
        let Chunks { span, channels, .. } = chunks;
        let scratch = Scratch {
            memory: self.workspace,
            first: 0,
            numel: g.scratch_numel(span, channels * g.taps(), false),
        };
        let mut pieces = Vec::new();
        for group in 0..g.groups {
            for item in (0..g.batch).step_by(span.items) {
                for c in (0..g.in_channels).step_by(channels) {
                    pieces.push(Piece {
                        group,
                        items: item..(item + span.items).min(g.batch),
                        channels: c..(c + channels).min(g.in_channels),
                    });
                }
            }
        }
        let threads = if pieces.len() == 1 { threads } else { 1 };
        pieces.par_iter().for_each(|piece| self.piece(piece, chunks, &scratch, threads));
    }

    fn piece(&self, piece: &Piece, chunks: Chunks, scratch: &Scratch, threads: usize) {
        let g = &self.geometry;
        let (taps, plane) = (g.taps(), g.input_numel());
        let (rows, k) = (piece.channels.len() * taps, g.out_channels);
        let first_plane =
            |item: usize| (item * g.groups + piece.group) * g.in_channels + piece.channels.start;
        // SAFETY: nobody writes to the gradient; scratch memory is this
        // thread's, and so are these channels of these items.
        let (gradient, scratch) = unsafe { (self.gradient.read::<f32>(), scratch.take()) };
        let output = |item: usize| unsafe {
            let numel = piece.channels.len() * plane;
            self.output.write_part::<f32>(first_plane(item) * plane, numel)
        };
        piece.items.clone().for_each(|item| output(item).fill(0.0));
        let (cols, side) = scratch.split_at_mut(rows * chunks.span.columns());
        let mine = |part: &super::Part| part.items == piece.items;
        for part in parts(g, chunks.span, piece.group).filter(mine) {
            let n = part.columns();
            let to = g.output_numel();
            let (b, b_stride) = if part.items.len() == 1 {
                let first = (part.items.start * g.groups + piece.group) * k;
                (&gradient[first * to + part.windows.start..], to)
            } else {
                side_by_side(g, &part, gradient, side);
                (&*side, n)
            };
            let product =
                Product { m: rows, n, k, transpose_a: true, transpose_b: false, accumulate: false };
            // SAFETY: the weight of the group is [k, channels · taps], of which
            // these rows are a part; the columns are [rows, n].
            unsafe {
                let width = g.in_channels * taps;
                let at = piece.group * k * width + piece.channels.start * taps;
                let a = self.weight.as_ptr::<f32>().add(at);
                product.run_strided(
                    threads,
                    (a, width),
                    (b.as_ptr(), b_stride),
                    (cols.as_mut_ptr(), n),
                );
            }
            for (i, item) in part.items.clone().enumerate() {
                let cols = &mut cols[i * part.windows.len()..];
                let channels = piece.channels.len();
                columns::scatter(g, cols, n, channels, &part.windows, output(item));
            }
        }
    }
}
