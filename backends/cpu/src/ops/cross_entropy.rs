//! `cross_entropy` and its gradient, row by row.

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

/// Sum in a fixed number of lanes, which vectorises and keeps errors small.
fn sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0f32; 16];
    values.enumerate().for_each(|(i, x)| lanes[i % 16] += x);
    lanes.iter().sum()
}

impl Task {
    pub fn run(&self) {
        // SAFETY: nobody writes to the inputs.
        let (logits, labels) =
            unsafe { (self.inputs[0].read::<f32>(), self.inputs[1].read::<i32>()) };
        let classes = self.classes;
        let smoothing = self.op.label_smoothing;
        in_pieces(labels.len(), (PIECE / classes).max(1), |first, rows| {
            for row in first..first + rows {
                let l = &logits[row * classes..][..classes];
                // NaN loses every comparison but shows in the sum below.
                let max = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let logsumexp = max + sum(l.iter().map(|x| math::exp(x - max))).ln();
                let label = labels[row];
                let (mut loss, mut weight, mut correct) = (0.0, 0.0, 0.0);
                if label != self.op.ignore_index {
                    weight = 1.0;
                    loss = match usize::try_from(label) {
                        Ok(y) if y < classes => {
                            let first_largest = l.iter().position(|x| *x == max);
                            correct = f32::from(u8::from(first_largest == Some(y)));
                            let target = logsumexp - l[y];
                            if smoothing == 0.0 {
                                target
                            } else {
                                // Σ (lse − l) / C keeps precision where Σ l would not.
                                let even = sum(l.iter().map(|x| logsumexp - x)) / classes as f32;
                                (1.0 - smoothing) * target + smoothing * even
                            }
                        }
                        _ => f32::NAN,
                    };
                }
                for (memory, value) in self.outputs.iter().zip([loss, weight, logsumexp, correct]) {
                    // SAFETY: each row is written by one piece.
                    let place = unsafe { memory.write_part::<f32>(row, 1) };
                    place[0] = value;
                }
            }
        });
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
        // SAFETY: nobody writes to these inputs. The logits may be the output:
        // they are read through a raw pointer, element by element, before the
        // element is written.
        let (labels, logsumexp, gradient) = unsafe {
            (
                self.inputs[1].read::<i32>(),
                self.inputs[2].read::<f32>(),
                self.inputs[3].read::<f32>(),
            )
        };
        let logits = self.inputs[0];
        let classes = self.classes;
        let smoothing = self.op.label_smoothing;
        let even = smoothing / classes as f32;
        in_pieces(labels.len(), (PIECE / classes).max(1), |first, rows| {
            for row in first..first + rows {
                let target = logits.as_ptr::<f32>();
                let out = self.output.as_ptr::<f32>();
                let ignored = labels[row] == self.op.ignore_index;
                for c in 0..classes {
                    // SAFETY: row and class are within [rows, classes].
                    unsafe {
                        let p = math::exp(*target.add(row * classes + c) - logsumexp[row]);
                        let wanted =
                            if labels[row] == c as i32 { 1.0 - smoothing + even } else { even };
                        *out.add(row * classes + c) =
                            if ignored { 0.0 } else { (p - wanted) * gradient[row] };
                    }
                }
            }
        });
    }
}
