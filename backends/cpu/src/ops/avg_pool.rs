//! `avg_pool` and its gradient, plane by plane.

use std::ops::Range;

use multiversion::multiversion;
use plimsoll_core::ops::pool::Windows;
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// Calls `f(plane, [elements of an input plane, of an output plane])` for all
/// planes, in parallel.
pub fn planes(w: &Windows, f: impl Fn(usize, [usize; 2]) + Sync + Send) {
    let sizes = [shape::numel(&w.input), shape::numel(&w.output)];
    in_pieces(w.planes, (PIECE / sizes[0].max(sizes[1])).max(1), |first, count| {
        (first..first + count).for_each(|plane| f(plane, sizes));
    });
}

/// The outputs of a row whose windows' element `k` lies inside the input, and
/// where the first of these elements lies.
pub fn inside(w: &Windows, k: usize) -> (Range<usize>, usize) {
    let (input, stride, padding) = (w.input[2], w.stride[2], w.padding[2]);
    let start = padding.saturating_sub(k).div_ceil(stride).min(w.output[2]);
    let end = (input + padding).saturating_sub(k).div_ceil(stride).clamp(start, w.output[2]);
    (start..end, (start * stride + k).saturating_sub(padding).min(input))
}

/// Calls `f(row of outputs, first element of a row of inputs, k)` for each row
/// of inputs that a row of outputs covers and each place in a window's row.
pub fn lines(w: &Windows, mut f: impl FnMut(usize, usize, usize)) {
    for row in 0..w.output[0] * w.output[1] {
        for z in w.covered(0, row / w.output[1]) {
            for y in w.covered(1, row % w.output[1]) {
                (0..w.kernel[2]).for_each(|k| f(row, (z * w.input[1] + y) * w.input[2], k));
            }
        }
    }
}

/// The mean of each window; or its gradient, then from a gradient to one.
pub struct Task {
    pub windows: Windows,
    pub count_include_pad: bool,
    pub input: Memory,
    pub output: Memory,
}

impl Task {
    /// What window `o` of row `row` divides by.
    #[inline]
    fn divisor(&self, row: usize, o: usize) -> f32 {
        let w = &self.windows;
        if self.count_include_pad {
            return w.kernel_numel() as f32;
        }
        let at = [row / w.output[1], row % w.output[1], o];
        (0..3).map(|d| w.covered(d, at[d]).len()).product::<usize>() as f32
    }

    pub fn run(&self) {
        let w = &self.windows;
        // SAFETY: nobody writes to the input.
        let x = unsafe { self.input.read::<f32>() };
        planes(w, |plane, [size, count]| {
            let x = &x[plane * size..][..size];
            // SAFETY: each plane is written by one piece.
            let y = unsafe { self.output.write_part::<f32>(plane * count, count) };
            y.fill(0.0);
            lines(w, |row, line, k| {
                let (outputs, start) = inside(w, k);
                let y = &mut y[row * w.output[2]..][..w.output[2]];
                add(&mut y[outputs], &x[line..][..w.input[2]][start..], w.stride[2]);
            });
            for (row, y) in y.chunks_exact_mut(w.output[2]).enumerate() {
                y.iter_mut().enumerate().for_each(|(o, y)| *y /= self.divisor(row, o));
            }
        });
    }

    /// Each window's share goes to all that it covers, in order.
    pub fn run_gradient(&self) {
        let w = &self.windows;
        // SAFETY: nobody writes to the gradient.
        let gradient = unsafe { self.input.read::<f32>() };
        planes(w, |plane, [size, count]| {
            let gradient = &gradient[plane * count..][..count];
            // SAFETY: each plane is written by one piece.
            let out = unsafe { self.output.write_part::<f32>(plane * size, size) };
            out.fill(0.0);
            lines(w, |row, line, k| {
                let (outputs, start) = inside(w, k);
                let g = &gradient[row * w.output[2]..][outputs.clone()];
                let out = &mut out[line..][..w.input[2]][start..];
                for (i, (o, g)) in out.iter_mut().step_by(w.stride[2]).zip(g).enumerate() {
                    *o += g / self.divisor(row, outputs.start + i);
                }
            });
        });
    }
}

/// Adds every `stride`-th of `x`.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn add(y: &mut [f32], x: &[f32], stride: usize) {
    match stride {
        1 => y.iter_mut().zip(x).for_each(|(y, x)| *y += x),
        2 => y.iter_mut().zip(x.chunks(2)).for_each(|(y, x)| *y += x[0]),
        _ => y.iter_mut().zip(x.iter().step_by(stride)).for_each(|(y, x)| *y += x),
    }
}
