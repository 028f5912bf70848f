//! `permute`, `slice`, `pad`, `concat`: strided copies of words.

use plimsoll_core::ops::strided_copy::StridedCopy;
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// Copies with their memory: copy `i` reads input `i`.
pub struct Task {
    pub copies: Vec<StridedCopy>,
    /// Bytes of the output to clear first.
    pub zero: usize,
    pub inputs: Vec<Memory>,
    pub output: Memory,
}

impl Task {
    pub fn run(&self) {
        if self.zero > 0 {
            // SAFETY: the output is ours alone.
            let output = unsafe { self.output.write::<u8>() };
            output[..self.zero].fill(0);
        }
        for (copy, input) in self.copies.iter().zip(&self.inputs) {
            run(copy, *input, self.output);
        }
    }
}

fn run(copy: &StridedCopy, from: Memory, to: Memory) {
    let strides = [copy.from_strides.clone(), copy.to_strides.clone()];
    let (sizes, strides) = shape::collapse(&copy.shape, &strides);
    let rank = sizes.len();
    let inner = sizes[rank - 1];
    let (from_step, to_step) = (strides[0][rank - 1], strides[1][rank - 1]);
    let rows = shape::numel(&sizes) / inner;
    in_pieces(rows, (PIECE / inner).max(1), |first, count| {
        for row in first..first + count {
            let (mut rest, mut source, mut target) = (row, copy.from_offset, copy.to_offset);
            for d in (0..rank - 1).rev() {
                let c = rest % sizes[d];
                rest /= sizes[d];
                source += c * strides[0][d];
                target += c * strides[1][d];
            }
            assert!(source + (inner - 1) * from_step < from.len::<u32>());
            assert!(target + (inner - 1) * to_step < to.len::<u32>());
            // SAFETY: just checked to be within both tensors, which do not
            // overlap; rows go to different places.
            unsafe {
                let (source, target) =
                    (from.as_ptr::<u32>().add(source), to.as_ptr::<u32>().add(target));
                if (from_step, to_step) == (1, 1) {
                    std::ptr::copy_nonoverlapping(source, target, inner);
                } else {
                    for i in 0..inner {
                        *target.add(i * to_step) = *source.add(i * from_step);
                    }
                }
            }
        }
    });
}
