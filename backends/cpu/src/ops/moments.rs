//! `moments`: chunks of rows in lanes, in two passes.

use multiversion::multiversion;
use plimsoll_core::ops::Moments;

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// Moments with their memory.
pub struct Task {
    pub op: Moments,
    pub input: Memory,
    /// Mean, variance, 1/√(variance + ε).
    pub outputs: Vec<Memory>,
    /// Mean and sum of squared deviations of each chunk, if rows are cut.
    pub workspace: Option<Memory>,
}

const LANES: usize = 16;

impl Task {
    pub fn run(&self) {
        let rows = self.op.extents[1];
        let (chunks, length) = (self.op.chunks(), self.op.chunk_length());
        in_pieces(rows * chunks, (PIECE / length).max(1), |first, count| {
            for i in first..first + count {
                let (mean, deviation, n) = self.chunk(i / chunks, i % chunks);
                match self.workspace {
                    // SAFETY: each chunk has a place of its own.
                    Some(w) => {
                        unsafe { w.write_part::<f32>(2 * i, 2) }.copy_from_slice(&[mean, deviation])
                    }
                    None => self.store(i, mean, deviation / n),
                }
            }
        });
        if let Some(workspace) = self.workspace {
            // SAFETY: all chunks have been written.
            let partial = unsafe { workspace.read::<f32>() };
            for row in 0..rows {
                self.join(row, &partial[2 * row * chunks..][..2 * chunks]);
            }
        }
    }

    /// Mean, sum of squared deviations and number of elements of a chunk.
    fn chunk(&self, row: usize, chunk: usize) -> (f32, f32, f32) {
        let length = self.op.length();
        let first = chunk * self.op.chunk_length();
        let end = (first + self.op.chunk_length()).min(length);
        if first >= end {
            return (0.0, 0.0, 1.0);
        }
        let n = (end - first) as f32;
        let mut lanes = [0.0; LANES];
        self.segments(row, first, end, |x| add(x, &mut lanes));
        let mean = lanes.iter().sum::<f32>() / n;
        let centre = if self.op.centred { mean } else { 0.0 };
        let mut lanes = [0.0; LANES];
        self.segments(row, first, end, |x| add_squares(x, centre, &mut lanes));
        (mean, lanes.iter().sum(), n)
    }

    /// Calls `f` with the contiguous runs of the row's elements `first..end`.
    fn segments(&self, row: usize, first: usize, end: usize, mut f: impl FnMut(&[f32])) {
        // SAFETY: nobody writes to the input.
        let x = unsafe { self.input.read::<f32>() };
        let [_, rows, inner] = self.op.extents;
        let mut i = first;
        while i < end {
            let (o, s) = (i / inner, i % inner);
            let now = (inner - s).min(end - i);
            f(&x[(o * rows + row) * inner + s..][..now]);
            i += now;
        }
    }

    /// Joins a row's chunks in order.
    fn join(&self, row: usize, partial: &[f32]) {
        let (length, step) = (self.op.length(), self.op.chunk_length());
        let (mut mean, mut deviation, mut count) = (0.0f32, 0.0f32, 0.0f32);
        for (c, pair) in partial.chunks_exact(2).enumerate() {
            let added = (length.min((c + 1) * step)).saturating_sub(c * step) as f32;
            if added == 0.0 {
                break;
            }
            let (delta, share) = (pair[0] - mean, added / (count + added));
            deviation += pair[1];
            if self.op.centred {
                deviation += delta * delta * count * share;
            }
            mean += delta * share;
            count += added;
        }
        self.store(row, mean, deviation / count);
    }

    fn store(&self, row: usize, mean: f32, variance: f32) {
        let rstd = 1.0 / (variance + self.op.epsilon).sqrt();
        for (memory, value) in self.outputs.iter().zip([mean, variance, rstd]) {
            // SAFETY: each row is stored once.
            let place = unsafe { memory.write_part::<f32>(row, 1) };
            place[0] = value;
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn add(x: &[f32], lanes: &mut [f32; LANES]) {
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for l in 0..LANES {
            lanes[l] += chunk[l];
        }
    }
    rest.iter().zip(lanes).for_each(|(x, l)| *l += x);
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn add_squares(x: &[f32], centre: f32, lanes: &mut [f32; LANES]) {
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for l in 0..LANES {
            let d = chunk[l] - centre;
            lanes[l] += d * d;
        }
    }
    rest.iter().zip(lanes).for_each(|(x, l)| *l += (x - centre) * (x - centre));
}
