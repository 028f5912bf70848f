//! What `max_pool` and `avg_pool` share: windows that slide over the planes of
//! a tensor [N, C, …] with one to three dimensions behind the channels.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::TensorType;
use crate::error::{Error, Result};
use crate::shape;

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 64;

/// Windows along each dimension behind [N, C].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Elements of a window.
    pub kernel: Vec<usize>,
    /// Elements from one window to the next.
    pub stride: Vec<usize>,
    /// Elements before the first and behind the last, at most half a window.
    pub padding: Vec<usize>,
}

impl Pool {
    /// Windows side by side, without padding.
    pub fn new(kernel: &[usize]) -> Pool {
        Pool { kernel: kernel.to_vec(), stride: kernel.to_vec(), padding: vec![0; kernel.len()] }
    }

    /// With another stride.
    pub fn stride(mut self, stride: &[usize]) -> Pool {
        self.stride = stride.to_vec();
        self
    }

    /// With padding.
    pub fn padding(mut self, padding: &[usize]) -> Pool {
        self.padding = padding.to_vec();
        self
    }

    /// The windows over a tensor of this shape.
    ///
    /// # Errors
    /// [`Error::Shape`] for settings that do not match the dimensions, padding
    /// of more than half a window, and windows larger than the padded input.
    pub fn windows(&self, op: &str, input: &[usize]) -> Result<Windows> {
        let sizes = spatial(op, input)?;
        let rank = input.len() - 2;
        let Pool { kernel, stride, padding } = self;
        if [kernel, stride, padding].iter().any(|s| s.len() != rank) {
            let message = format!(
                "kernel {kernel:?}, stride {stride:?} and padding {padding:?} for {rank} dimensions of {input:?}"
            );
            return Err(Error::shape(op, message));
        }
        let planes = shape::numel(&input[..2]);
        let mut w = Windows {
            planes,
            input: sizes,
            output: [1; 3],
            kernel: [1; 3],
            stride: [1; 3],
            padding: [0; 3],
        };
        for d in 0..rank {
            let (k, s, p, size) = (kernel[d], stride[d], padding[d], input[2 + d]);
            if k == 0 || s == 0 || p > k / 2 {
                let message = format!(
                    "kernel {k}, stride {s}, padding {p}: expected at least 1, at least 1, at most half the kernel"
                );
                return Err(Error::shape(op, message));
            }
            let Some(free) = size.checked_add(2 * p).and_then(|padded| padded.checked_sub(k))
            else {
                let message = format!("a window of {k} over {size} elements, padded by {p}");
                return Err(Error::shape(op, message));
            };
            let at = 3 - rank + d;
            w.output[at] = free / s + 1;
            (w.kernel[at], w.stride[at], w.padding[at]) = (k, s, p);
        }
        Ok(w)
    }

    /// The output's shape for an input of this shape.
    pub(super) fn output_shape(&self, op: &str, input: &[usize]) -> Result<Vec<usize>> {
        let windows = self.windows(op, input)?;
        let rank = input.len() - 2;
        let mut out = input[..2].to_vec();
        out.extend(&windows.output[3 - rank..]);
        Ok(out)
    }
}

/// Windows over planes of three dimensions, of which leading ones may be 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// N · C.
    pub planes: usize,
    /// Sizes of an input plane.
    pub input: [usize; 3],
    /// Windows along each dimension.
    pub output: [usize; 3],
    /// Elements of a window.
    pub kernel: [usize; 3],
    /// Elements from one window to the next.
    pub stride: [usize; 3],
    /// Elements before the first.
    pub padding: [usize; 3],
}

/// Sizes behind [N, C] as three, of which leading ones may be 1.
pub(super) fn spatial(op: &str, input: &[usize]) -> Result<[usize; 3]> {
    if !(3..=5).contains(&input.len()) {
        let message = format!("shape {input:?}, expected [N, C] and one to three dimensions more");
        return Err(Error::shape(op, message));
    }
    let mut sizes = [1; 3];
    sizes[5 - input.len()..].copy_from_slice(&input[2..]);
    Ok(sizes)
}

impl Windows {
    /// The elements along dimension `d` that window `o` covers.
    pub fn covered(&self, d: usize, o: usize) -> Range<usize> {
        let start = o * self.stride[d];
        start.saturating_sub(self.padding[d])
            ..(start + self.kernel[d] - self.padding[d]).min(self.input[d])
    }

    /// Elements of a whole window.
    pub fn kernel_numel(&self) -> usize {
        shape::numel(&self.kernel)
    }

    /// Parameters of the kernels: `count` elements to write, then the sizes of
    /// the input, the output and the kernel, stride and padding.
    pub(super) fn parameters(&self, count: usize) -> Vec<u32> {
        let sizes = [self.input, self.output, self.kernel, self.stride, self.padding];
        std::iter::once(count).chain(sizes.into_iter().flatten()).map(|x| x as u32).collect()
    }

    /// Calls `f(window, element)` for each element that a window covers, both
    /// as positions in a plane. For the references.
    pub(super) fn walk(&self, mut f: impl FnMut(usize, usize)) {
        let [_, height, width] = self.input;
        for o in 0..shape::numel(&self.output) {
            let [_, oh, ow] = self.output;
            let at = [o / (oh * ow), o / ow % oh, o % ow];
            for z in self.covered(0, at[0]) {
                for y in self.covered(1, at[1]) {
                    for x in self.covered(2, at[2]) {
                        f(o, (z * height + y) * width + x);
                    }
                }
            }
        }
    }
}

/// Checks that a gradient op's input has the output's shape.
pub(super) fn expect_shape(op: &str, t: &TensorType, shape: &[usize]) -> Result<()> {
    if t.shape == shape {
        return Ok(());
    }
    Err(Error::shape(op, format!("shape {:?}, expected {shape:?}", t.shape)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_as_pytorch_does() {
        let pool = Pool::new(&[3, 2]).stride(&[2, 1]).padding(&[1, 0]);
        let w = pool.windows("max_pool", &[2, 5, 7, 4]).expect("fits");
        assert_eq!((w.planes, w.input, w.output), (10, [1, 7, 4], [1, 4, 3]));
        assert_eq!((w.covered(1, 0), w.covered(1, 3), w.covered(2, 2)), (0..2, 5..7, 2..4));
    }

    #[test]
    fn senseless_pools_are_typed_errors() {
        let fails = |pool: Pool, input: &[usize]| {
            matches!(pool.windows("max_pool", input), Err(Error::Shape { .. }))
        };
        assert!(fails(Pool::new(&[2, 2]), &[1, 1, 4]));
        assert!(fails(Pool::new(&[2]), &[1, 4]));
        assert!(fails(Pool::new(&[2]), &[1, 1, 1, 1, 1, 4]));
        assert!(fails(Pool::new(&[0]), &[1, 1, 4]));
        assert!(fails(Pool::new(&[2]).stride(&[0]), &[1, 1, 4]));
        assert!(fails(Pool::new(&[3]).padding(&[2]), &[1, 1, 4]));
        assert!(fails(Pool::new(&[5]), &[1, 1, 4]));
        assert!(fails(Pool::new(&[usize::MAX]).padding(&[usize::MAX / 2]), &[1, 1, 4]));
    }
}
