//! `pad`: zeros around a tensor.

use serde::{Deserialize, Serialize};

use super::strided_copy::{self, StridedCopy};
use super::{Cost, Emit, LowerContext, Op, Operation, Slice, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::shape;

/// Zeros before and after each dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Zeros before each dimension.
    pub before: Vec<usize>,
    /// Zeros after each dimension.
    pub after: Vec<usize>,
}

impl Pad {
    fn shape(&self, input: &[usize]) -> Vec<usize> {
        (0..input.len()).map(|d| self.before[d] + input[d] + self.after[d]).collect()
    }

    /// The copy that fills the interior for an input of this shape.
    pub fn copy(&self, input: &[usize]) -> StridedCopy {
        let to_strides = shape::strides(&self.shape(input));
        StridedCopy {
            shape: input.to_vec(),
            from_offset: 0,
            from_strides: shape::strides(input),
            to_offset: self.before.iter().zip(&to_strides).map(|(b, s)| b * s).sum(),
            to_strides,
        }
    }
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("pad", inputs, 1)?;
        super::expect_words("pad", &inputs[0])?;
        let rank = inputs[0].shape.len();
        if self.before.len() != rank || self.after.len() != rank {
            let message = format!(
                "padding for {} and {} dimensions, the tensor has {rank}",
                self.before.len(),
                self.after.len()
            );
            return Err(Error::shape("pad", message));
        }
        let fits = |d: usize| {
            let padded = inputs[0].shape[d].checked_add(self.before[d]);
            padded.and_then(|p| p.checked_add(self.after[d])).is_some()
        };
        if !(0..rank).all(fits) {
            let message = format!("padding {:?} and {:?} is too large", self.before, self.after);
            return Err(Error::shape("pad", message));
        }
        Ok(vec![TensorType::new(self.shape(&inputs[0].shape), inputs[0].dtype)])
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
        let ends = shape.iter().zip(&self.before).map(|(s, b)| s + b).collect();
        let slice = Slice { starts: self.before.clone(), ends };
        Ok(vec![Some(cx.emit(Op::Slice(slice), &[g])?[0])])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: 2 * inputs[0].bytes() + outputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let copy = self.copy(&cx.inputs[0].tensor.shape);
        vec![
            strided_copy::zero(&cx.outputs[0], cx.capabilities),
            copy.launch(&cx.inputs[0], &cx.outputs[0], cx.capabilities),
        ]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let shape = self.shape(&inputs[0].shape);
        let mut values = vec![0.0; shape::numel(&shape)];
        self.copy(&inputs[0].shape).run(&inputs[0].values, &mut values);
        vec![Tensor64 { shape, values, dtype: inputs[0].dtype }]
    }
}
