//! What `conv`, `conv_input_gradient` and `conv_weight_gradient` share: the
//! geometry of a convolution over [N, C, …] with one to three dimensions
//! behind the channels.

use serde::{Deserialize, Serialize};

use super::pool::spatial;
use crate::error::{Error, Result};
use crate::shape;

/// Settings of a convolution, one number for each dimension behind [N, C].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convolution {
    /// Elements from one window to the next.
    pub stride: Vec<usize>,
    /// Zeros before the first and behind the last element.
    pub padding: Vec<usize>,
    /// Elements from one tap of the kernel to the next.
    pub dilation: Vec<usize>,
    /// The channels are cut into so many groups, each with its own outputs.
    pub groups: usize,
}

impl Convolution {
    /// Stride 1, no padding, dilation 1, one group, over `rank` dimensions.
    pub fn new(rank: usize) -> Convolution {
        Convolution {
            stride: vec![1; rank],
            padding: vec![0; rank],
            dilation: vec![1; rank],
            groups: 1,
        }
    }

    /// With another stride.
    pub fn stride(mut self, stride: &[usize]) -> Convolution {
        self.stride = stride.to_vec();
        self
    }

    /// With padding.
    pub fn padding(mut self, padding: &[usize]) -> Convolution {
        self.padding = padding.to_vec();
        self
    }

    /// With dilation.
    pub fn dilation(mut self, dilation: &[usize]) -> Convolution {
        self.dilation = dilation.to_vec();
        self
    }

    /// With groups.
    pub fn groups(mut self, groups: usize) -> Convolution {
        self.groups = groups;
        self
    }

    /// The geometry for an input [N, C, …] and a weight [O, C / groups, …].
    ///
    /// # Errors
    /// [`Error::Shape`] for settings that do not match the dimensions, channels
    /// that do not divide into the groups, and kernels larger than the padded
    /// input.
    pub fn geometry(&self, op: &str, input: &[usize], weight: &[usize]) -> Result<Geometry> {
        let sizes = spatial(op, input)?;
        let rank = input.len() - 2;
        let fail = |message: String| Err(Error::shape(op, message));
        let Convolution { stride, padding, dilation, groups } = self;
        if [stride, padding, dilation].iter().any(|s| s.len() != rank) {
            return fail(format!(
                "stride {stride:?}, padding {padding:?} and dilation {dilation:?} for {rank} dimensions of {input:?}"
            ));
        }
        if weight.len() != input.len() {
            return fail(format!(
                "a weight of shape {weight:?} for an input of shape {input:?}; expected [outputs, channels / groups] and {rank} more"
            ));
        }
        let (channels, outputs) = (input[1], weight[0]);
        if *groups == 0 || channels % groups != 0 || outputs % groups != 0 {
            return fail(format!(
                "{channels} channels to {outputs} in {groups} groups: both must divide into them"
            ));
        }
        if weight[1] != channels / groups {
            return fail(format!(
                "the weight takes {} channels, expected {channels} / {groups}",
                weight[1]
            ));
        }
        let mut g = Geometry {
            batch: input[0],
            groups: *groups,
            in_channels: channels / groups,
            out_channels: outputs / groups,
            input: sizes,
            output: [1; 3],
            kernel: [1; 3],
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
        };
        for d in 0..rank {
            let at = 3 - rank + d;
            let (k, s, p, e) = (weight[2 + d], stride[d], padding[d], dilation[d]);
            if s == 0 || e == 0 {
                return fail(format!("stride {s} and dilation {e}: expected at least 1"));
            }
            let size = sizes[at];
            let reach = (k - 1).checked_mul(e).and_then(|r| r.checked_add(1));
            let padded = p.checked_mul(2).and_then(|p| p.checked_add(size));
            let (Some(reach), Some(padded)) = (reach, padded) else {
                return fail(format!("padding {p} and dilation {e} overflow"));
            };
            // Kernels count in 32 bits, with signs.
            if padded.max(reach).max(s) > i32::MAX as usize / 2 {
                return fail(format!("padding {p}, stride {s} or dilation {e} is too large"));
            }
            if reach > padded {
                return fail(format!(
                    "a kernel that reaches over {reach} of {size} elements padded by {p}"
                ));
            }
            g.output[at] = (padded - reach) / s + 1;
            (g.kernel[at], g.stride[at], g.padding[at], g.dilation[at]) = (k, s, p, e);
        }
        Ok(g)
    }

    /// The shape of the output.
    pub(super) fn output_shape(
        &self,
        op: &str,
        input: &[usize],
        weight: &[usize],
    ) -> Result<Vec<usize>> {
        let g = self.geometry(op, input, weight)?;
        let mut out = vec![g.batch, weight[0]];
        out.extend(&g.output[5 - input.len()..]);
        Ok(out)
    }
}

/// Sizes of a convolution over three dimensions, of which leading ones may
/// be 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Items.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Channels of the input in a group.
    pub in_channels: usize,
    /// Channels of the output in a group.
    pub out_channels: usize,
    /// Sizes of an input plane.
    pub input: [usize; 3],
    /// Sizes of an output plane.
    pub output: [usize; 3],
    /// Taps of the kernel.
    pub kernel: [usize; 3],
    /// Elements from one window to the next.
    pub stride: [usize; 3],
    /// Zeros before the first element.
    pub padding: [usize; 3],
    /// Elements from one tap to the next.
    pub dilation: [usize; 3],
}

impl Geometry {
    /// Taps of the kernel.
    pub fn taps(&self) -> usize {
        shape::numel(&self.kernel)
    }

    /// Elements of an input plane.
    pub fn input_numel(&self) -> usize {
        shape::numel(&self.input)
    }

    /// Elements of an output plane.
    pub fn output_numel(&self) -> usize {
        shape::numel(&self.output)
    }

    /// Elements of the weight.
    pub fn weight_numel(&self) -> usize {
        self.groups * self.out_channels * self.in_channels * self.taps()
    }

    /// Multiplications and additions of any of the three ops.
    pub fn flops(&self) -> u64 {
        2 * (self.batch * self.output_numel()) as u64 * self.weight_numel() as u64
    }

    /// Whether windows are single elements side by side: the columns of the
    /// product are the input itself.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.padding == [0; 3]
    }

    /// The input's coordinate that window `o` meets with tap `k` along
    /// dimension `d`, unless it is padding.
    pub fn met(&self, d: usize, o: usize, k: usize) -> Option<usize> {
        (o * self.stride[d] + k * self.dilation[d])
            .checked_sub(self.padding[d])
            .filter(|i| *i < self.input[d])
    }

    /// Calls `f(window, tap, element)` for each element that a window covers,
    /// all as positions in their planes. For the references.
    pub(super) fn walk(&self, mut f: impl FnMut(usize, usize, usize)) {
        let split = |i: usize, [_, h, w]: [usize; 3]| [i / (h * w), i / w % h, i % w];
        for o in 0..self.output_numel() {
            for k in 0..self.taps() {
                let (at, tap) = (split(o, self.output), split(k, self.kernel));
                let met = |d: usize| self.met(d, at[d], tap[d]);
                if let (Some(z), Some(y), Some(x)) = (met(0), met(1), met(2)) {
                    f(o, k, (z * self.input[1] + y) * self.input[2] + x);
                }
            }
        }
    }

    /// Calls `f(input, weight, output)` with the positions in the whole
    /// tensors of all products that the convolution adds up.
    pub(super) fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (ci, co, taps) = (self.in_channels, self.out_channels, self.taps());
        let (from, to) = (self.input_numel(), self.output_numel());
        let mut covered = Vec::new();
        self.walk(|o, k, i| covered.push((o, k, i)));
        for n in 0..self.batch {
            for group in 0..self.groups {
                for m in group * co..(group + 1) * co {
                    for c in 0..ci {
                        let x = ((n * self.groups + group) * ci + c) * from;
                        let y = (n * self.groups * co + m) * to;
                        let w = (m * ci + c) * taps;
                        covered.iter().for_each(|(o, k, i)| f(x + i, w + k, y + o));
                    }
                }
            }
        }
    }

    /// Parameters of the kernels, 22 words: batch, groups, channels of input
    /// and output, sizes of input and output, kernel, stride, padding, dilation.
    pub(super) fn parameters(&self) -> Vec<u32> {
        let counts = [self.batch, self.groups, self.in_channels, self.out_channels];
        let sizes =
            [self.input, self.output, self.kernel, self.stride, self.padding, self.dilation];
        counts.into_iter().chain(sizes.into_iter().flatten()).map(|x| x as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_are_those_of_pytorch() {
        let c = Convolution::new(2).stride(&[2, 1]).padding(&[1, 2]).dilation(&[1, 2]).groups(3);
        let g = c.geometry("conv", &[2, 6, 9, 7], &[12, 2, 3, 2]).expect("fits");
        assert_eq!((g.in_channels, g.out_channels, g.output), (2, 4, [1, 5, 9]));
        assert_eq!((g.met(1, 0, 0), g.met(1, 4, 1), g.met(1, 4, 2)), (None, Some(8), None));
    }

    #[test]
    fn senseless_convolutions_are_typed_errors() {
        let fails = |c: Convolution, x: &[usize], w: &[usize]| {
            matches!(c.geometry("conv", x, w), Err(Error::Shape { .. }))
        };
        let one = || Convolution::new(1);
        assert!(fails(one(), &[1, 1], &[1, 1]));
        assert!(fails(one(), &[1, 1, 4, 4], &[1, 1, 1, 1]));
        assert!(fails(one(), &[1, 1, 4], &[1, 1, 1, 1]));
        assert!(fails(one(), &[1, 2, 4], &[1, 1, 1]));
        assert!(fails(one().groups(0), &[1, 1, 4], &[1, 1, 1]));
        assert!(fails(one().groups(2), &[1, 4, 4], &[3, 2, 1]));
        assert!(fails(one().stride(&[0]), &[1, 1, 4], &[1, 1, 1]));
        assert!(fails(one().dilation(&[0]), &[1, 1, 4], &[1, 1, 1]));
        assert!(fails(one(), &[1, 1, 4], &[1, 1, 5]));
        assert!(fails(one().dilation(&[usize::MAX]), &[1, 1, 4], &[1, 1, 3]));
        assert!(fails(one().padding(&[usize::MAX / 2]), &[1, 1, 4], &[1, 1, 3]));
    }
}
