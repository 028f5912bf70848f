//! `permute`: reorders the dimensions. Output dimension `d` is input dimension
//! `order[d]`.

use serde::{Deserialize, Serialize};

use super::strided_copy::StridedCopy;
use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::shape;

/// A reordering of dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permute {
    /// For each output dimension, the input dimension.
    pub order: Vec<usize>,
}

impl Permute {
    /// The copy that computes it for an input of this shape.
    pub fn copy(&self, input: &[usize]) -> StridedCopy {
        let from = shape::strides(input);
        let shape: Vec<usize> = self.order.iter().map(|d| input[*d]).collect();
        StridedCopy {
            from_offset: 0,
            from_strides: self.order.iter().map(|d| from[*d]).collect(),
            to_offset: 0,
            to_strides: shape::strides(&shape),
            shape,
        }
    }
}

impl Operation for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("permute", inputs, 1)?;
        super::expect_words("permute", &inputs[0])?;
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted != (0..inputs[0].shape.len()).collect::<Vec<_>>() {
            let message = format!(
                "{:?} does not reorder the dimensions of {:?}",
                self.order, inputs[0].shape
            );
            return Err(Error::shape("permute", message));
        }
        let shape: Vec<usize> = self.order.iter().map(|d| inputs[0].shape[*d]).collect();
        Ok(vec![TensorType::new(shape, inputs[0].dtype)])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        _inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None]) };
        let mut order = vec![0; self.order.len()];
        for (d, from) in self.order.iter().enumerate() {
            order[*from] = d;
        }
        Ok(vec![Some(cx.emit(Op::Permute(Permute { order }), &[g])?[0])])
    }

    fn cost(&self, _inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: 2 * outputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let copy = self.copy(&cx.inputs[0].tensor.shape);
        vec![copy.launch(&cx.inputs[0], &cx.outputs[0], cx.capabilities)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let copy = self.copy(&inputs[0].shape);
        let mut values = vec![0.0; inputs[0].values.len()];
        copy.run(&inputs[0].values, &mut values);
        vec![Tensor64 { shape: copy.shape, values, dtype: inputs[0].dtype }]
    }
}
