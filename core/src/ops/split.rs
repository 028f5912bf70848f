//! `split`: a tensor cut along an axis, as [`concat`](super::concat) undoes.

use serde::{Deserialize, Serialize};

use super::strided_copy::StridedCopy;
use super::{Concat, Cost, Emit, LowerContext, Map, Op, Operation, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::expression::{E, Expression};
use crate::launch::Launch;
use crate::shape;

/// A cut into pieces that follow each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The axis that is cut.
    pub axis: usize,
    /// The sizes of the pieces along it; they add up to its size.
    pub sizes: Vec<usize>,
}

impl Split {
    fn shapes(&self, input: &[usize]) -> Vec<Vec<usize>> {
        let piece = |size: &usize| {
            let mut shape = input.to_vec();
            shape[self.axis] = *size;
            shape
        };
        self.sizes.iter().map(piece).collect()
    }

    /// The copies, one an output, for an input of this shape.
    pub fn copies(&self, input: &[usize]) -> Vec<StridedCopy> {
        let from_strides = shape::strides(input);
        let mut start = 0;
        self.shapes(input)
            .into_iter()
            .map(|shape| {
                let from_offset = start * from_strides[self.axis];
                start += shape[self.axis];
                StridedCopy {
                    from_offset,
                    from_strides: from_strides.clone(),
                    to_offset: 0,
                    to_strides: shape::strides(&shape),
                    shape,
                }
            })
            .collect()
    }
}

impl Operation for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("split", inputs, 1)?;
        super::expect_words("split", &inputs[0])?;
        let shape = &inputs[0].shape;
        let total = self.sizes.iter().try_fold(0usize, |sum, s| sum.checked_add(*s));
        if self.sizes.contains(&0) || total.is_none() || shape.get(self.axis).copied() != total {
            let message = format!(
                "sizes {:?} do not cut axis {} of {shape:?} into pieces that are not empty",
                self.sizes, self.axis
            );
            return Err(Error::shape("split", message));
        }
        let dtype = inputs[0].dtype;
        Ok(self.shapes(shape).into_iter().map(|s| TensorType::new(s, dtype)).collect())
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        _inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let mut parts = Vec::new();
        for (output, gradient) in outputs.iter().zip(gradients) {
            parts.push(match gradient {
                Some(g) => *g,
                None => {
                    let expression = Expression::new(vec![], &[E::constant(0.0)]);
                    let shape = cx.tensor_type(*output).shape;
                    cx.emit(Op::Map(Map { expression, shape }), &[])?[0]
                }
            });
        }
        Ok(vec![Some(cx.emit(Op::Concat(Concat { axis: self.axis }), &parts)?[0])])
    }

    fn cost(&self, inputs: &[TensorType], _outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: 2 * inputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let copies = self.copies(&cx.inputs[0].tensor.shape);
        let pairs = copies.iter().zip(cx.outputs);
        pairs.map(|(copy, to)| copy.launch(&cx.inputs[0], to, cx.capabilities)).collect()
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let run = |copy: StridedCopy| {
            let mut values = vec![0.0; shape::numel(&copy.shape)];
            copy.run(&inputs[0].values, &mut values);
            Tensor64 { shape: copy.shape, values, dtype: inputs[0].dtype }
        };
        self.copies(&inputs[0].shape).into_iter().map(run).collect()
    }
}
