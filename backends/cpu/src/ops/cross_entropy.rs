//! `cross_entropy` and its gradient, row by row.

use multiversion::multiversion;
use plimsoll_core::ops::CrossEntropy;

use super::{PIECE, in_pieces};
use crate::arena::Memory;
use crate::math;

/// Loss of each row. Inputs: logits, labels. Outputs: loss, weight,
/// logsumexp, correct.
pub struct Task {
    pub op: CrossEntropy,
    pub classes: usize,
    pub inputs: Vec<Memory>,
    pub outputs: Vec<Memory>,
}

/// Loss, weight, logsumexp and correct of a row of logits.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
pub fn row(op: &CrossEntropy, l: &[f32], label: i32) -> [f32; 4] {
    // A NaN shows in the sum.
    let max = math::largest(l);
    let logsumexp = max + math::sum(l, |x| math::exp(x - max)).ln();
    if label == op.ignore_index {
        return [0.0, 0.0, logsumexp, 0.0];
    }
    let Some(y) = usize::try_from(label).ok().filter(|y| *y < l.len()) else {
        return [f32::NAN, 1.0, logsumexp, 0.0];
    };
    let first_largest = l[y] == max && l[..y].iter().all(|x| *x != max);
    let mut loss = logsumexp - l[y];
    if op.label_smoothing != 0.0 {
        // Σ (lse − l) / C keeps precision where Σ l would not.
        let even = math::sum(l, |x| logsumexp - x) / l.len() as f32;
        loss = (1.0 - op.label_smoothing) * loss + op.label_smoothing * even;
    }
    [loss, 1.0, logsumexp, f32::from(u8::from(first_largest))]
}

/// Turns a row of logits into its gradient, in place.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
pub fn row_gradient(op: &CrossEntropy, l: &mut [f32], label: i32, logsumexp: f32, gradient: f32) {
    if label == op.ignore_index {
        return l.fill(0.0);
    }
    let smoothing = op.label_smoothing;
    let even = smoothing / l.len() as f32;
    let at_label = usize::try_from(label).ok().and_then(|y| Some((y, *l.get(y)?)));
    for x in l.iter_mut() {
        *x = (math::exp(*x - logsumexp) - even) * gradient;
    }
    if let Some((y, x)) = at_label {
        l[y] = (math::exp(x - logsumexp) - (1.0 - smoothing + even)) * gradient;
    }
}

impl Task {
    pub fn run(&self) {
        // SAFETY: nobody writes to the inputs.
        let (logits, labels) =
            unsafe { (self.inputs[0].read::<f32>(), self.inputs[1].read::<i32>()) };
        let classes = self.classes;
        in_pieces(labels.len(), (PIECE / classes).max(1), |first, rows| {
            for i in first..first + rows {
                let results = row(&self.op, &logits[i * classes..][..classes], labels[i]);
                store(&self.outputs, i, results);
            }
        });
    }
}

/// Writes the results of row `i`, which only its piece writes.
pub fn store(outputs: &[Memory], i: usize, results: [f32; 4]) {
    for (memory, value) in outputs.iter().zip(results) {
        // SAFETY: each row is written by one piece.
        let place = unsafe { memory.write_part::<f32>(i, 1) };
        place[0] = value;
    }
}

/// Gradient of the logits. Inputs: logits, labels, logsumexp, gradient.
pub struct GradientTask {
    pub op: CrossEntropy,
    pub classes: usize,
    pub inputs: Vec<Memory>,
    pub output: Memory,
}

impl GradientTask {
    pub fn run(&self) {
        // SAFETY: nobody writes to these inputs. The logits may be the output.
        let (labels, logsumexp, gradient) = unsafe {
            (
                self.inputs[1].read::<i32>(),
                self.inputs[2].read::<f32>(),
                self.inputs[3].read::<f32>(),
            )
        };
        let classes = self.classes;
        let logits = self.inputs[0];
        assert!(logits.len::<f32>() == labels.len() * classes);
        in_pieces(labels.len(), (PIECE / classes).max(1), |first, rows| {
            for i in first..first + rows {
                // SAFETY: each row is read and written by one piece; a copy may
                // overlap itself.
                let l = unsafe {
                    let from = logits.as_ptr::<f32>().add(i * classes);
                    from.copy_to(self.output.as_ptr::<f32>().add(i * classes), classes);
                    self.output.write_part::<f32>(i * classes, classes)
                };
                row_gradient(&self.op, l, labels[i], logsumexp[i], gradient[i]);
            }
        });
    }
}
