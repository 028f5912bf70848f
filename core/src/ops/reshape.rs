//! `reshape`: the same elements under another shape. Tensors are contiguous,
//! so this computes nothing: the program builder lets both share one buffer.

use serde::{Deserialize, Serialize};

use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::shape;

/// A change of shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reshape {
    /// The new shape.
    pub shape: Vec<usize>,
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("reshape", inputs, 1)?;
        let t = &inputs[0];
        if shape::checked_numel(&self.shape) != Some(t.numel()) {
            let message = format!(
                "{:?} has {} elements, {:?} has another number",
                t.shape,
                t.numel(),
                self.shape
            );
            return Err(Error::shape("reshape", message));
        }
        Ok(vec![TensorType::new(self.shape.clone(), t.dtype)])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None]) };
        let shape = cx.tensor_type(inputs[0]).shape;
        Ok(vec![Some(cx.emit(Op::Reshape(Reshape { shape }), &[g])?[0])])
    }

    fn cost(&self, _inputs: &[TensorType], _outputs: &[TensorType]) -> Cost {
        Cost::default()
    }

    fn lower(&self, _cx: &LowerContext<'_>) -> Vec<Launch> {
        Vec::new()
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        vec![Tensor64 { shape: self.shape.clone(), ..inputs[0].clone() }]
    }
}
