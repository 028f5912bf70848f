//! `upsample` and its gradient, plane by plane and row by row.

use plimsoll_core::ops::UpsampleMode;
use plimsoll_core::ops::upsample::Planes;
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// The two inputs that an output takes along a dimension, and the share of the
/// second.
#[derive(Clone, Copy)]
struct Source {
    low: usize,
    high: usize,
    share: f32,
}

impl Source {
    /// What output `o` takes of `size` elements.
    fn of(mode: UpsampleMode, factor: usize, size: usize, o: usize) -> Source {
        let low = o / factor;
        // (o + ½) / factor − ½ is low + (twice − factor) / (2 · factor).
        let twice = 2 * (o % factor) + 1;
        let share = |x: usize| x as f32 / (2 * factor) as f32;
        if mode == UpsampleMode::Nearest || (twice < factor && low == 0) {
            Source { low, high: low, share: 0.0 }
        } else if twice < factor {
            Source { low: low - 1, high: low, share: share(twice + factor) }
        } else {
            Source { low, high: (low + 1).min(size - 1), share: share(twice - factor) }
        }
    }

    /// The inputs with their shares; the second only where it counts.
    fn shares(self) -> impl Iterator<Item = (usize, f32)> {
        let both = [(self.low, 1.0 - self.share), (self.high, self.share)];
        both.into_iter().take(if self.share == 0.0 { 1 } else { 2 })
    }
}

/// Enlarges; or adds up the gradient, then from a gradient to one.
pub struct Task {
    planes: Planes,
    mode: UpsampleMode,
    /// Along the last dimension.
    across: Vec<Source>,
    input: Memory,
    output: Memory,
}

impl Task {
    pub fn new(planes: Planes, mode: UpsampleMode, input: Memory, output: Memory) -> Task {
        let source = |o| Source::of(mode, planes.factors[2], planes.input[2], o);
        let across = (0..planes.output[2]).map(source).collect();
        Task { planes, mode, across, input, output }
    }

    /// Calls `f(plane, [elements of a plane of x, of the output])`.
    fn planes(&self, f: impl Fn(usize, [usize; 2]) + Sync + Send) {
        let sizes = [shape::numel(&self.planes.input), shape::numel(&self.planes.output)];
        in_pieces(self.planes.count, (PIECE / sizes[1]).max(1), |first, count| {
            (first..first + count).for_each(|plane| f(plane, sizes));
        });
    }

    /// Calls `f(row of outputs, first element of a row of x, share)` for each
    /// row of x that a row of outputs takes.
    fn rows(&self, mut f: impl FnMut(usize, usize, f32)) {
        let Planes { input, output, factors, .. } = self.planes;
        for row in 0..output[0] * output[1] {
            let source = |d: usize, o| Source::of(self.mode, factors[d], input[d], o);
            for (z, a) in source(0, row / output[1]).shares() {
                for (y, b) in source(1, row % output[1]).shares() {
                    f(row, (z * input[1] + y) * input[2], a * b);
                }
            }
        }
    }

    pub fn run(&self) {
        let [_, _, width] = self.planes.input;
        // SAFETY: nobody writes to the input.
        let x = unsafe { self.input.read::<f32>() };
        self.planes(|plane, [size, count]| {
            let x = &x[plane * size..][..size];
            // SAFETY: each plane is written by one piece.
            let y = unsafe { self.output.write_part::<f32>(plane * count, count) };
            y.fill(0.0);
            self.rows(|row, line, share| {
                let x = &x[line..][..width];
                let y = &mut y[row * self.across.len()..][..self.across.len()];
                match self.mode {
                    UpsampleMode::Nearest => {
                        y.iter_mut().zip(&self.across).for_each(|(y, s)| *y = x[s.low]);
                    }
                    UpsampleMode::Linear => {
                        for (y, s) in y.iter_mut().zip(&self.across) {
                            *y += share * (x[s.low] * (1.0 - s.share) + x[s.high] * s.share);
                        }
                    }
                }
            });
        });
    }

    pub fn run_gradient(&self) {
        let [_, _, width] = self.planes.input;
        // SAFETY: nobody writes to the gradient.
        let gradient = unsafe { self.input.read::<f32>() };
        self.planes(|plane, [size, count]| {
            let gradient = &gradient[plane * count..][..count];
            // SAFETY: each plane is written by one piece.
            let out = unsafe { self.output.write_part::<f32>(plane * size, size) };
            out.fill(0.0);
            self.rows(|row, line, share| {
                let out = &mut out[line..][..width];
                let g = &gradient[row * self.across.len()..][..self.across.len()];
                match self.mode {
                    UpsampleMode::Nearest => {
                        g.iter().zip(&self.across).for_each(|(g, s)| out[s.low] += g);
                    }
                    UpsampleMode::Linear => {
                        for (g, s) in g.iter().zip(&self.across) {
                            out[s.low] += share * (1.0 - s.share) * g;
                            out[s.high] += share * s.share * g;
                        }
                    }
                }
            });
        });
    }
}
