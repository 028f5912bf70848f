//! `concat`: tensors one after another along an axis.

use serde::{Deserialize, Serialize};

use super::strided_copy::StridedCopy;
use super::{Cost, Emit, LowerContext, Op, Operation, Slice, Tensor64, TensorType, ValueId};
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::shape;

/// A concatenation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis along which the tensors follow each other.
    pub axis: usize,
}

impl Concat {
    fn shape<'a>(&self, mut inputs: impl Iterator<Item = &'a [usize]>) -> Vec<usize> {
        let mut out = inputs.next().expect("infer has checked it").to_vec();
        out[self.axis] += inputs.map(|s| s[self.axis]).sum::<usize>();
        out
    }

    /// The copies, one an input, for inputs of these shapes.
    pub fn copies(&self, inputs: &[&[usize]]) -> Vec<StridedCopy> {
        let to_strides = shape::strides(&self.shape(inputs.iter().copied()));
        let mut start = 0;
        inputs
            .iter()
            .map(|s| {
                let copy = StridedCopy {
                    shape: s.to_vec(),
                    from_offset: 0,
                    from_strides: shape::strides(s),
                    to_offset: start * to_strides[self.axis],
                    to_strides: to_strides.clone(),
                };
                start += s[self.axis];
                copy
            })
            .collect()
    }
}

impl Operation for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let Some(first) = inputs.first() else {
            return Err(Error::shape("concat", "takes at least one tensor"));
        };
        super::expect_words("concat", first)?;
        for t in inputs {
            let others_agree = t.shape.len() == first.shape.len()
                && (0..t.shape.len()).all(|d| d == self.axis || t.shape[d] == first.shape[d]);
            if t.dtype != first.dtype || self.axis >= first.shape.len() || !others_agree {
                return Err(Error::shape(
                    "concat",
                    format!(
                        "{} {:?} does not follow {} {:?} along axis {}",
                        t.dtype, t.shape, first.dtype, first.shape, self.axis
                    ),
                ));
            }
        }
        let shape = self.shape(inputs.iter().map(|t| t.shape.as_slice()));
        Ok(vec![TensorType::new(shape, first.dtype)])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None; inputs.len()]) };
        let total = cx.tensor_type(g).shape;
        let mut start = 0;
        let mut out = Vec::new();
        for (input, wanted) in inputs.iter().zip(wanted) {
            let size = cx.tensor_type(*input).shape[self.axis];
            let (mut starts, mut ends) = (vec![0; total.len()], total.clone());
            (starts[self.axis], ends[self.axis]) = (start, start + size);
            start += size;
            out.push(if *wanted {
                Some(cx.emit(Op::Slice(Slice { starts, ends }), &[g])?[0])
            } else {
                None
            });
        }
        Ok(out)
    }

    fn cost(&self, _inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: 2 * outputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shapes: Vec<&[usize]> = cx.inputs.iter().map(|o| o.tensor.shape.as_slice()).collect();
        let copies = self.copies(&shapes);
        copies
            .iter()
            .zip(cx.inputs)
            .map(|(c, i)| c.launch(i, &cx.outputs[0], cx.capabilities))
            .collect()
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.shape.as_slice()).collect();
        let shape = self.shape(shapes.iter().copied());
        let mut values = vec![0.0; shape::numel(&shape)];
        for (copy, input) in self.copies(&shapes).iter().zip(inputs) {
            copy.run(&input.values, &mut values);
        }
        vec![Tensor64 { shape, values, dtype: inputs[0].dtype }]
    }
}
