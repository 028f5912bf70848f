//! `linear_cross_entropy` and its gradient: chunk by chunk, the products by the
//! `gemm` crate, the rows as those of `cross_entropy`.

use plimsoll_core::ops::CrossEntropy;
use plimsoll_core::ops::linear_cross_entropy::Extents;

use super::cross_entropy::{row, row_gradient, store};
use super::matmul::Product;
use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// What both passes have.
pub struct Linear {
    pub loss: CrossEntropy,
    pub extents: Extents,
    pub hidden: Memory,
    pub weight: Memory,
    pub labels: Memory,
    pub bias: Option<Memory>,
    /// The logits of a chunk.
    pub workspace: Memory,
}

impl Linear {
    /// Computes the logits of `rows` rows, without the bias.
    fn logits(&self, threads: usize, first: usize, rows: usize) {
        let Extents { width, classes, .. } = self.extents;
        let product = Product {
            m: rows,
            n: classes,
            k: width,
            transpose_a: false,
            transpose_b: true,
            accumulate: false,
        };
        // SAFETY: hidden is [all rows, width], the weight [classes, width], and
        // the workspace holds a chunk's logits.
        unsafe {
            let hidden = self.hidden.as_ptr::<f32>().add(first * width);
            product.run(threads, hidden, self.weight.as_ptr(), self.workspace.as_ptr());
        }
    }

    /// Calls `f(row of the chunk, its logits)` for all rows, in parallel, the
    /// bias added.
    fn rows(&self, rows: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
        let classes = self.extents.classes;
        // SAFETY: nobody writes to the bias.
        let bias = self.bias.map(|b| unsafe { b.read::<f32>() });
        in_pieces(rows, (PIECE / classes).max(1), |first, count| {
            for i in first..first + count {
                // SAFETY: each row is touched by one piece.
                let l = unsafe { self.workspace.write_part::<f32>(i * classes, classes) };
                if let Some(bias) = bias {
                    l.iter_mut().zip(bias).for_each(|(l, b)| *l += b);
                }
                f(i, l);
            }
        });
    }
}

/// The loss. Outputs: loss, weight, logsumexp, correct.
pub struct Task {
    pub linear: Linear,
    pub outputs: Vec<Memory>,
}

impl Task {
    pub fn run(&self, threads: usize) {
        // SAFETY: nobody writes to the labels.
        let labels = unsafe { self.linear.labels.read::<i32>() };
        for (first, rows) in self.linear.extents.chunks() {
            self.linear.logits(threads, first, rows);
            self.linear.rows(rows, |i, l| {
                store(&self.outputs, first + i, row(&self.linear.loss, l, labels[first + i]));
            });
        }
    }
}

/// The gradients of hidden, weight and bias, as far as they are wanted.
pub struct GradientTask {
    pub linear: Linear,
    pub logsumexp: Memory,
    pub gradient: Memory,
    pub outputs: [Option<Memory>; 3],
}

impl GradientTask {
    pub fn run(&self, threads: usize) {
        let linear = &self.linear;
        let Extents { width, classes, .. } = linear.extents;
        // SAFETY: nobody writes to these.
        let (labels, logsumexp, gradient) = unsafe {
            (linear.labels.read::<i32>(), self.logsumexp.read::<f32>(), self.gradient.read::<f32>())
        };
        let p = linear.workspace.as_ptr::<f32>();
        for (first, rows) in linear.extents.chunks() {
            linear.logits(threads, first, rows);
            linear.rows(rows, |i, l| {
                let r = first + i;
                row_gradient(&linear.loss, l, labels[r], logsumexp[r], gradient[r]);
            });
            if let Some(bias) = self.outputs[2] {
                self.column_sums(bias, rows, first > 0);
            }
            if let Some(weight) = self.outputs[1] {
                let product = Product {
                    m: classes,
                    n: width,
                    k: rows,
                    transpose_a: true,
                    transpose_b: false,
                    accumulate: first > 0,
                };
                // SAFETY: the sizes are those of the tensors; the gradient of
                // the weight lies by itself.
                unsafe {
                    let hidden = linear.hidden.as_ptr::<f32>().add(first * width);
                    product.run(threads, p, hidden, weight.as_ptr());
                }
            }
            if let Some(hidden) = self.outputs[0] {
                let product = Product {
                    m: rows,
                    n: width,
                    k: classes,
                    transpose_a: false,
                    transpose_b: false,
                    accumulate: false,
                };
                // SAFETY: as above. It may lie over hidden, whose rows of this
                // chunk nobody reads any more.
                unsafe {
                    let out = hidden.as_ptr::<f32>().add(first * width);
                    product.run(threads, p, linear.weight.as_ptr(), out);
                }
            }
        }
    }

    /// Σ over the chunk's rows, in order, block by block of classes.
    fn column_sums(&self, out: Memory, rows: usize, accumulate: bool) {
        let classes = self.linear.extents.classes;
        // SAFETY: nobody writes to the workspace now.
        let p = unsafe { self.linear.workspace.read::<f32>() };
        in_pieces(classes, (PIECE / rows).max(64), |first, count| {
            // SAFETY: each piece has classes of its own.
            let out = unsafe { out.write_part::<f32>(first, count) };
            if !accumulate {
                out.fill(0.0);
            }
            for r in 0..rows {
                let p = &p[r * classes + first..][..count];
                out.iter_mut().zip(p).for_each(|(o, p)| *o += p);
            }
        });
    }
}
