//! `max_pool` and its gradient, plane by plane.

use multiversion::multiversion;
use plimsoll_core::ops::pool::Windows;

use super::avg_pool::{inside, lines, planes};
use crate::arena::Memory;

/// The largest element of each window and its position.
pub struct Task {
    pub windows: Windows,
    pub input: Memory,
    pub largest: Memory,
    pub indices: Memory,
}

impl Task {
    pub fn run(&self) {
        let w = &self.windows;
        let [_, height, width] = w.input;
        // SAFETY: nobody writes to the input.
        let x = unsafe { self.input.read::<f32>() };
        planes(w, |plane, [size, count]| {
            let x = &x[plane * size..][..size];
            // SAFETY: each plane is written by one piece.
            let (y, at) = unsafe {
                (
                    self.largest.write_part::<f32>(plane * count, count),
                    self.indices.write_part::<i32>(plane * count, count),
                )
            };
            let across = w.output[2];
            y.fill(f32::NEG_INFINITY);
            // If all are minus infinity, the first.
            for (o, at) in at.iter_mut().enumerate() {
                let place = [o / across / w.output[1], o / across % w.output[1], o % across];
                let [z, y, x] = [0, 1, 2].map(|d| w.covered(d, place[d]).start);
                *at = ((z * height + y) * width + x) as i32;
            }
            lines(w, |row, line, k| {
                let (outputs, start) = inside(w, k);
                let y = &mut y[row * across..][outputs.clone()];
                let at = &mut at[row * across..][outputs];
                let x = &x[line..][..width][start..];
                larger(y, at, x, w.stride[2], (line + start) as i32);
            });
        });
    }
}

/// Takes `x`, every `stride`-th of it, where it is larger; `first` is the
/// position of the first.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn larger(y: &mut [f32], at: &mut [i32], x: &[f32], stride: usize, first: i32) {
    #[inline(always)]
    fn take(y: &mut f32, at: &mut i32, x: f32, place: i32) {
        let better = x > *y || x.is_nan();
        *y = if better { x } else { *y };
        *at = if better { place } else { *at };
    }
    let targets = y.iter_mut().zip(at);
    match stride {
        1 => targets.zip(x).zip(first..).for_each(|(((y, at), x), p)| take(y, at, *x, p)),
        2 => {
            for (i, ((y, at), x)) in targets.zip(x.chunks(2)).enumerate() {
                take(y, at, x[0], first + 2 * i as i32);
            }
        }
        _ => {
            for (i, ((y, at), x)) in targets.zip(x.iter().step_by(stride)).enumerate() {
                take(y, at, *x, first + (i * stride) as i32);
            }
        }
    }
}

/// The gradient: each window's goes to its largest element, in order.
pub struct GradientTask {
    pub windows: Windows,
    pub indices: Memory,
    pub gradient: Memory,
    pub output: Memory,
}

impl GradientTask {
    pub fn run(&self) {
        // SAFETY: nobody writes to the inputs.
        let (indices, gradient) =
            unsafe { (self.indices.read::<i32>(), self.gradient.read::<f32>()) };
        planes(&self.windows, |plane, [size, count]| {
            // SAFETY: each plane is written by one piece.
            let out = unsafe { self.output.write_part::<f32>(plane * size, size) };
            out.fill(0.0);
            let part = plane * count..(plane + 1) * count;
            for (at, g) in indices[part.clone()].iter().zip(&gradient[part]) {
                if let Some(o) = usize::try_from(*at).ok().and_then(|at| out.get_mut(at)) {
                    *o += g;
                }
            }
        });
    }
}
