//! `embedding`: rows of a table by index, and its deterministic gradient.

use serde::{Deserialize, Serialize};

use super::{
    Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map, strided_copy,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Launch;

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 64;

/// Inputs: table [rows, width] f32, indices `[..]` i32. Output: [.., width].
/// An index outside the table gives NaN, so that it does not go unseen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding;

/// Inputs: indices `[..]` i32, gradient [.., width]. Output: [rows, width], the
/// sum of the gradients of each row, in the order of the indices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingGradient {
    /// Rows of the table.
    pub rows: usize,
}

impl Operation for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("embedding", inputs, 2)?;
        super::expect_dtype("embedding", &inputs[0], DType::F32)?;
        super::expect_dtype("embedding", &inputs[1], DType::I32)?;
        let [_, width] = inputs[0].shape[..] else {
            return Err(Error::shape(
                "embedding",
                format!("the table has shape {:?}, expected [rows, width]", inputs[0].shape),
            ));
        };
        let mut shape = inputs[1].shape.clone();
        shape.push(width);
        Ok(vec![TensorType::f32(shape)])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0].filter(|_| wanted[0]) else { return Ok(vec![None; 2]) };
        let rows = cx.tensor_type(inputs[0]).shape[0];
        let op = Op::EmbeddingGradient(EmbeddingGradient { rows });
        Ok(vec![Some(cx.emit(op, &[inputs[1], g])?[0]), None])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: 0, bytes: inputs[1].bytes() + 2 * outputs[0].bytes() }
    }

    /// Parameters: rows, width, number of indices.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let table = &cx.inputs[0].tensor.shape;
        let count = cx.inputs[1].tensor.numel();
        let mut bound = map::Bindings::default();
        bound.bind_named("table", cx.inputs[0].storage, DType::F32);
        bound.bind_named("indices", cx.inputs[1].storage, DType::I32);
        bound.bind_named("out", cx.outputs[0].storage, DType::F32);
        let groups = ((count * table[1]) as u64).div_ceil(u64::from(WORKGROUP));
        vec![bound.launch(
            "embedding",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            cx.capabilities.fold_groups(groups),
            [table[0], table[1], count].map(|x| x as u32).to_vec(),
        )]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let (rows, width) = (inputs[0].shape[0], inputs[0].shape[1]);
        let mut values = Vec::new();
        for i in &inputs[1].values {
            if *i >= 0.0 && (*i as usize) < rows {
                values.extend_from_slice(&inputs[0].values[*i as usize * width..][..width]);
            } else {
                values.extend(std::iter::repeat_n(f64::NAN, width));
            }
        }
        let mut shape = inputs[1].shape.clone();
        shape.push(width);
        vec![Tensor64 { shape, values, dtype: DType::F32 }]
    }
}

impl Operation for EmbeddingGradient {
    fn name(&self) -> &'static str {
        "embedding_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("embedding_gradient", inputs, 2)?;
        super::expect_dtype("embedding_gradient", &inputs[0], DType::I32)?;
        super::expect_dtype("embedding_gradient", &inputs[1], DType::F32)?;
        let (indices, gradient) = (&inputs[0].shape, &inputs[1].shape);
        if gradient.len() != indices.len() + 1 || gradient[..indices.len()] != indices[..] {
            return Err(Error::shape(
                "embedding_gradient",
                format!("indices {indices:?}, gradient {gradient:?}"),
            ));
        }
        Ok(vec![TensorType::f32([self.rows, gradient[indices.len()]])])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost {
            flops: inputs[1].numel() as u64,
            bytes: inputs[0].bytes() + inputs[1].bytes() * 2 + outputs[0].bytes(),
        }
    }

    /// Zeros, then a workgroup an index: the first occurrence of a row adds
    /// up all later ones. Reads count²/2 indices, which caches serve.
    /// Parameters: rows, width, number of indices.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let width = cx.outputs[0].tensor.shape[1];
        let count = cx.inputs[0].tensor.numel();
        let mut bound = map::Bindings::default();
        bound.bind_named("indices", cx.inputs[0].storage, DType::I32);
        bound.bind_named("gradient", cx.inputs[1].storage, DType::F32);
        bound.bind_named("out", cx.outputs[0].storage, DType::F32);
        let sum = bound.launch(
            "embedding_gradient",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            cx.capabilities.fold_groups(count as u64),
            [self.rows, width, count].map(|x| x as u32).to_vec(),
        );
        vec![strided_copy::zero(&cx.outputs[0], cx.capabilities), sum]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let width = *inputs[1].shape.last().expect("has a width");
        let mut values = vec![0.0; self.rows * width];
        for (n, i) in inputs[0].values.iter().enumerate() {
            if *i >= 0.0 && (*i as usize) < self.rows {
                for c in 0..width {
                    values[*i as usize * width + c] += inputs[1].values[n * width + c];
                }
            }
        }
        vec![Tensor64 { shape: vec![self.rows, width], values, dtype: DType::F32 }]
    }
}
