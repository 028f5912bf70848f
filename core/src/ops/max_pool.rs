//! `max_pool`: the largest element of each window, and where it was.

use serde::{Deserialize, Serialize};

use super::pool::{Pool, WORKGROUP, expect_shape};
use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Launch;
use crate::shape;

/// Input: x [N, C, …] f32. Outputs: the largest element of each window and, as
/// i32, its position in the plane (row-major, without padding): the first of
/// equals. NaN counts as the largest, the last one if there are several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool {
    /// The windows.
    pub pool: Pool,
}

/// Inputs: positions (i32) and gradient, both of the output's shape. Output:
/// the gradient of x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPoolGradient {
    /// The windows.
    pub pool: Pool,
    /// The shape of x.
    pub input: Vec<usize>,
}

impl Operation for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("max_pool", inputs, 1)?;
        super::expect_dtype("max_pool", &inputs[0], DType::F32)?;
        let shape = self.pool.output_shape("max_pool", &inputs[0].shape)?;
        Ok(vec![TensorType::f32(shape.clone()), TensorType::new(shape, DType::I32)])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None]) };
        let input = cx.tensor_type(inputs[0]).shape;
        let op = Op::MaxPoolGradient(MaxPoolGradient { pool: self.pool.clone(), input });
        Ok(vec![Some(cx.emit(op, &[outputs[1], g])?[0])])
    }

    fn differentiable(&self, j: usize) -> bool {
        j == 0
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let window = shape::numel(&self.pool.kernel) as u64;
        Cost {
            flops: outputs[0].numel() as u64 * window,
            bytes: inputs[0].bytes() + outputs[0].bytes() * 2,
        }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shape = &cx.inputs[0].tensor.shape;
        let windows = self.pool.windows("max_pool", shape).expect("was inferred");
        let count = cx.outputs[0].tensor.numel();
        let mut bound = map::Bindings::default();
        bound.bind_named("x", cx.inputs[0].storage, DType::F32);
        bound.bind_named("y", cx.outputs[0].storage, DType::F32);
        bound.bind_named("indices", cx.outputs[1].storage, DType::I32);
        vec![bound.launch(
            "max_pool",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            cx.capabilities.fold_groups((count as u64).div_ceil(u64::from(WORKGROUP))),
            windows.parameters(count),
        )]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let windows = self.pool.windows("max_pool", &inputs[0].shape).expect("was inferred");
        let shape = self.pool.output_shape("max_pool", &inputs[0].shape).expect("was inferred");
        let (size, count) = (shape::numel(&windows.input), shape::numel(&windows.output));
        let mut largest = vec![f64::NEG_INFINITY; windows.planes * count];
        let mut places = vec![-1.0; windows.planes * count];
        for plane in 0..windows.planes {
            windows.walk(|o, i| {
                let x = inputs[0].values[plane * size + i];
                let at = plane * count + o;
                if x > largest[at] || x.is_nan() || places[at] < 0.0 {
                    (largest[at], places[at]) = (x, i as f64);
                }
            });
        }
        vec![
            Tensor64 { shape: shape.clone(), values: largest, dtype: DType::F32 },
            Tensor64 { shape, values: places, dtype: DType::I32 },
        ]
    }
}

impl Operation for MaxPoolGradient {
    fn name(&self) -> &'static str {
        "max_pool_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "max_pool_gradient";
        super::expect_inputs(op, inputs, 2)?;
        super::expect_dtype(op, &inputs[0], DType::I32)?;
        super::expect_dtype(op, &inputs[1], DType::F32)?;
        let shape = self.pool.output_shape(op, &self.input)?;
        inputs.iter().try_for_each(|t| expect_shape(op, t, &shape))?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let window = shape::numel(&self.pool.kernel) as u64;
        Cost {
            flops: inputs[0].numel() as u64 * window,
            bytes: inputs[0].bytes() * 2 + outputs[0].bytes(),
        }
    }

    /// Each element looks at the windows that cover it, in order.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let windows = self.pool.windows("max_pool_gradient", &self.input).expect("was inferred");
        let count = cx.outputs[0].tensor.numel();
        let mut bound = map::Bindings::default();
        bound.bind_named("indices", cx.inputs[0].storage, DType::I32);
        bound.bind_named("gradient", cx.inputs[1].storage, DType::F32);
        bound.bind_named("out", cx.outputs[0].storage, DType::F32);
        vec![bound.launch(
            "max_pool_gradient",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            cx.capabilities.fold_groups((count as u64).div_ceil(u64::from(WORKGROUP))),
            windows.parameters(count),
        )]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let windows = self.pool.windows("max_pool_gradient", &self.input).expect("was inferred");
        let (size, count) = (shape::numel(&windows.input), shape::numel(&windows.output));
        let mut values = vec![0.0; windows.planes * size];
        for plane in 0..windows.planes {
            windows.walk(|o, i| {
                let at = plane * count + o;
                if inputs[0].values[at] == i as f64 {
                    values[plane * size + i] += inputs[1].values[at];
                }
            });
        }
        vec![Tensor64 { shape: self.input.clone(), values, dtype: DType::F32 }]
    }
}
