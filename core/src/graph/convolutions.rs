//! Convolutions.

use super::Graph;
use crate::error::{Error, Result};
use crate::ops::{Conv, ConvInputGradient, Convolution, Emit, Op, ValueId};

impl Graph {
    /// The convolution of x [N, C, …] with a weight [O, C / groups, …] over one
    /// to three dimensions: [N, O, …].
    pub fn conv(&mut self, x: ValueId, weight: ValueId, c: &Convolution) -> Result<ValueId> {
        Ok(self.emit(Op::Conv(Conv::new(c.clone())), &[x, weight])?[0])
    }

    /// The transposed convolution of x [N, C, …] with a weight
    /// [C, O / groups, …], as PyTorch's `conv_transpose`: [N, O, …] with
    /// (size − 1)·stride − 2·padding + dilation·(kernel − 1) + 1 elements along
    /// each dimension and `output_padding`, less than the stride, more.
    pub fn conv_transpose(
        &mut self,
        x: ValueId,
        weight: ValueId,
        c: &Convolution,
        output_padding: &[usize],
    ) -> Result<ValueId> {
        let (from, kernel) = (self.shape(x).to_vec(), self.shape(weight).to_vec());
        let rank = from.len().saturating_sub(2);
        let settings = [&c.stride[..], &c.padding, &c.dilation, output_padding];
        let fail = |g: &Graph, message: String| {
            Err(Error::shape(g.scoped_name("conv_transpose"), message))
        };
        if rank == 0 || kernel.len() != from.len() || settings.iter().any(|s| s.len() != rank) {
            let message = format!(
                "input {from:?}, weight {kernel:?} and {} numbers for each setting: expected as many dimensions behind the first two",
                c.stride.len()
            );
            return fail(self, message);
        }
        let Some(outputs) = kernel[1].checked_mul(c.groups) else {
            return fail(self, format!("{} groups are too many", c.groups));
        };
        let mut input = vec![from[0], outputs];
        for d in 0..rank {
            let (s, p, e, more) = (c.stride[d], c.padding[d], c.dilation[d], output_padding[d]);
            if more >= s {
                return fail(self, format!("output padding {more} for stride {s}: must be less"));
            }
            let size = (from[2 + d] - 1)
                .checked_mul(s)
                .zip((kernel[2 + d] - 1).checked_mul(e))
                .and_then(|(windows, reach)| windows.checked_add(reach)?.checked_add(1 + more))
                .zip(p.checked_mul(2))
                .and_then(|(size, padding)| size.checked_sub(padding))
                .filter(|size| *size > 0);
            let Some(size) = size else {
                return fail(self, format!("padding {p} leaves nothing of dimension {}", 2 + d));
            };
            input.push(size);
        }
        let op = ConvInputGradient { convolution: c.clone(), input };
        Ok(self.emit(Op::ConvInputGradient(op), &[weight, x])?[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::graph::Mode;

    #[test]
    fn transposed_convolutions_are_sized_as_in_pytorch() {
        let mut g = Graph::new(Mode::Train);
        let x = g.input("x", &[2, 6, 5, 4], DType::F32).expect("fine");
        let w = g.input("w", &[6, 4, 3, 2], DType::F32).expect("fine");
        let c = Convolution::new(2).stride(&[2, 3]).padding(&[1, 0]).dilation(&[2, 1]).groups(2);
        let y = g.conv_transpose(x, w, &c, &[1, 2]).expect("fine");
        assert_eq!(g.shape(y), [2, 8, 12, 13]);
        let fails = |g: &mut Graph, c: &Convolution, more: &[usize]| {
            matches!(g.conv_transpose(x, w, c, more), Err(Error::Shape { .. }))
        };
        assert!(fails(&mut g, &c, &[2, 0]));
        assert!(fails(&mut g, &c, &[0]));
        assert!(fails(&mut g, &c.clone().padding(&[9, 9]), &[0, 0]));
        assert!(fails(&mut g, &c.clone().groups(4), &[0, 0]));
        assert!(fails(&mut g, &c.clone().groups(usize::MAX), &[0, 0]));
    }
}
