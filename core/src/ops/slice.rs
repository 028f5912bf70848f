//! `slice`: the box `start..end` of every dimension.

use serde::{Deserialize, Serialize};

use super::strided_copy::StridedCopy;
use super::{Cost, Emit, LowerContext, Op, Operation, Pad, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::shape;

/// A box of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// First index of each dimension.
    pub starts: Vec<usize>,
    /// One past the last index of each dimension.
    pub ends: Vec<usize>,
}

impl Slice {
    fn shape(&self) -> Vec<usize> {
        self.starts.iter().zip(&self.ends).map(|(s, e)| e - s).collect()
    }

    /// The copy that computes it for an input of this shape.
    pub fn copy(&self, input: &[usize]) -> StridedCopy {
        let from_strides = shape::strides(input);
        StridedCopy {
            shape: self.shape(),
            from_offset: self.starts.iter().zip(&from_strides).map(|(s, t)| s * t).sum(),
            from_strides,
            to_offset: 0,
            to_strides: shape::strides(&self.shape()),
        }
    }
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("slice", inputs, 1)?;
        super::expect_words("slice", &inputs[0])?;
        let shape = &inputs[0].shape;
        let fits = self.starts.len() == shape.len()
            && self.ends.len() == shape.len()
            && (0..shape.len()).all(|d| self.starts[d] < self.ends[d] && self.ends[d] <= shape[d]);
        if !fits {
            return Err(Error::shape(
                "slice",
                format!(
                    "{:?}..{:?} is not a box that is inside {shape:?} and not empty",
                    self.starts, self.ends
                ),
            ));
        }
        Ok(vec![TensorType::new(self.shape(), inputs[0].dtype)])
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
        let after = shape.iter().zip(&self.ends).map(|(s, e)| s - e).collect();
        let pad = Pad { before: self.starts.clone(), after };
        Ok(vec![Some(cx.emit(Op::Pad(pad), &[g])?[0])])
    }

    fn cost(&self, _inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: 2 * outputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let copy = self.copy(&cx.inputs[0].tensor.shape);
        vec![copy.launch(&cx.inputs[0], &cx.outputs[0], cx.capabilities)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let mut values = vec![0.0; shape::numel(&self.shape())];
        self.copy(&inputs[0].shape).run(&inputs[0].values, &mut values);
        vec![Tensor64 { shape: self.shape(), values, dtype: inputs[0].dtype }]
    }
}
