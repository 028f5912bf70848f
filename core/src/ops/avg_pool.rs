//! `avg_pool`: the mean of each window.

use serde::{Deserialize, Serialize};

use super::pool::{Pool, WORKGROUP, Windows, expect_shape};
use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::{Launch, StorageId};
use crate::shape;

/// Input: x [N, C, …] f32. Output: the mean of each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvgPool {
    /// The windows.
    pub pool: Pool,
    /// Whether padding counts as elements that are 0; else means are over the
    /// elements that are there.
    pub count_include_pad: bool,
}

/// Input: gradient of the output's shape. Output: the gradient of x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvgPoolGradient {
    /// The op whose gradient this is.
    pub forward: AvgPool,
    /// The shape of x.
    pub input: Vec<usize>,
}

impl AvgPool {
    /// What window `o` of a plane divides by.
    fn divisor(&self, windows: &Windows, o: usize) -> usize {
        if self.count_include_pad {
            return windows.kernel_numel();
        }
        let [_, height, width] = windows.output;
        let at = [o / (height * width), o / width % height, o % width];
        (0..3).map(|d| windows.covered(d, at[d]).len()).product()
    }

    /// Parameters of both kernels: the windows', then whether padding counts.
    fn launch(
        &self,
        name: &str,
        cx: &LowerContext<'_>,
        windows: &Windows,
        bindings: [(&str, StorageId); 2],
    ) -> Launch {
        let count = cx.outputs[0].tensor.numel();
        let mut bound = map::Bindings::default();
        for (name, storage) in bindings {
            bound.bind_named(name, storage, DType::F32);
        }
        let mut parameters = windows.parameters(count);
        parameters.push(u32::from(self.count_include_pad));
        bound.launch(
            name,
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            cx.capabilities.fold_groups((count as u64).div_ceil(u64::from(WORKGROUP))),
            parameters,
        )
    }
}

impl Operation for AvgPool {
    fn name(&self) -> &'static str {
        "avg_pool"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("avg_pool", inputs, 1)?;
        super::expect_dtype("avg_pool", &inputs[0], DType::F32)?;
        Ok(vec![TensorType::f32(self.pool.output_shape("avg_pool", &inputs[0].shape)?)])
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
        let input = cx.tensor_type(inputs[0]).shape;
        let op = Op::AvgPoolGradient(AvgPoolGradient { forward: self.clone(), input });
        Ok(vec![Some(cx.emit(op, &[g])?[0])])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let window = shape::numel(&self.pool.kernel) as u64;
        Cost {
            flops: outputs[0].numel() as u64 * (window + 1),
            bytes: inputs[0].bytes() + outputs[0].bytes(),
        }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shape = &cx.inputs[0].tensor.shape;
        let windows = self.pool.windows("avg_pool", shape).expect("was inferred");
        let bindings = [("x", cx.inputs[0].storage), ("y", cx.outputs[0].storage)];
        vec![self.launch("avg_pool", cx, &windows, bindings)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let windows = self.pool.windows("avg_pool", &inputs[0].shape).expect("was inferred");
        let shape = self.pool.output_shape("avg_pool", &inputs[0].shape).expect("was inferred");
        let (size, count) = (shape::numel(&windows.input), shape::numel(&windows.output));
        let mut values = vec![0.0; windows.planes * count];
        for plane in 0..windows.planes {
            windows.walk(|o, i| {
                values[plane * count + o] +=
                    inputs[0].values[plane * size + i] / self.divisor(&windows, o) as f64;
            });
        }
        vec![Tensor64 { shape, values, dtype: DType::F32 }]
    }
}

impl Operation for AvgPoolGradient {
    fn name(&self) -> &'static str {
        "avg_pool_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "avg_pool_gradient";
        super::expect_inputs(op, inputs, 1)?;
        super::expect_dtype(op, &inputs[0], DType::F32)?;
        expect_shape(op, &inputs[0], &self.forward.pool.output_shape(op, &self.input)?)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let window = shape::numel(&self.forward.pool.kernel) as u64;
        Cost {
            flops: inputs[0].numel() as u64 * (window + 1),
            bytes: inputs[0].bytes() + outputs[0].bytes(),
        }
    }

    /// Each element looks at the windows that cover it, in order.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let pool = &self.forward.pool;
        let windows = pool.windows("avg_pool_gradient", &self.input).expect("was inferred");
        let bindings = [("gradient", cx.inputs[0].storage), ("out", cx.outputs[0].storage)];
        vec![self.forward.launch("avg_pool_gradient", cx, &windows, bindings)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let pool = &self.forward.pool;
        let windows = pool.windows("avg_pool_gradient", &self.input).expect("was inferred");
        let (size, count) = (shape::numel(&windows.input), shape::numel(&windows.output));
        let mut values = vec![0.0; windows.planes * size];
        for plane in 0..windows.planes {
            windows.walk(|o, i| {
                let divisor = self.forward.divisor(&windows, o) as f64;
                values[plane * size + i] += inputs[0].values[plane * count + o] / divisor;
            });
        }
        vec![Tensor64 { shape: self.input.clone(), values, dtype: DType::F32 }]
    }
}
