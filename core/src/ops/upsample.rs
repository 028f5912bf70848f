//! `upsample`: enlarges the dimensions behind [N, C] by whole factors, as
//! PyTorch's `interpolate` with `align_corners=False`.
//!
//! Output o lies over the input position (o + ½) / factor − ½: `Nearest` takes
//! input ⌊o / factor⌋, `Linear` mixes the two neighbours of the position (the
//! edges repeat).

use serde::{Deserialize, Serialize};

use super::pool::{WORKGROUP, spatial};
use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Launch, StorageId};
use crate::shape;

/// What lies between the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpsampleMode {
    /// Every element is repeated.
    Nearest,
    /// Linear along each dimension: bilinear over two, trilinear over three.
    Linear,
}

/// Input: x [N, C, …] f32 with one to three dimensions more. Output: each of
/// them `factor` times as large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upsample {
    /// The factor of each dimension behind [N, C].
    pub factors: Vec<usize>,
    /// What lies between the elements.
    pub mode: UpsampleMode,
}

/// Input: gradient of the output's shape. Output: the gradient of x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpsampleGradient {
    /// The op whose gradient this is.
    pub forward: Upsample,
}

/// Sizes of planes of three dimensions, of which leading ones may be 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// N · C.
    pub count: usize,
    /// Sizes of a plane of x.
    pub input: [usize; 3],
    /// Sizes of a plane of the output.
    pub output: [usize; 3],
    /// Factors between them.
    pub factors: [usize; 3],
}

impl Upsample {
    /// The planes for an x of this shape.
    ///
    /// # Errors
    /// [`Error::Shape`] for factors that do not match the dimensions, or are 0.
    pub fn planes(&self, op: &str, input: &[usize]) -> Result<Planes> {
        let sizes = spatial(op, input)?;
        let mut output = sizes;
        let rank = input.len() - 2;
        let message = || format!("factors {:?} for {rank} dimensions of {input:?}", self.factors);
        if self.factors.len() != rank || self.factors.contains(&0) {
            return Err(Error::shape(op, message()));
        }
        let mut factors = [1; 3];
        factors[3 - rank..].copy_from_slice(&self.factors);
        for d in 0..3 {
            let size = sizes[d].checked_mul(factors[d]);
            output[d] = size.ok_or_else(|| Error::shape(op, message()))?;
        }
        Ok(Planes { count: shape::numel(&input[..2]), input: sizes, output, factors })
    }

    /// The shape of x for an output of this shape.
    fn input_shape(&self, op: &str, output: &[usize]) -> Result<Vec<usize>> {
        let fits = output.len() == self.factors.len() + 2
            && output[2..].iter().zip(&self.factors).all(|(o, f)| *f > 0 && o % f == 0);
        if !fits {
            let message = format!("shape {output:?} was not made by factors {:?}", self.factors);
            return Err(Error::shape(op, message));
        }
        let mut input = output[..2].to_vec();
        input.extend(output[2..].iter().zip(&self.factors).map(|(o, f)| o / f));
        Ok(input)
    }

    /// Parameters of both kernels: elements to write, sizes of input and
    /// output planes, factors.
    fn launch(
        &self,
        name: &str,
        cx: &LowerContext<'_>,
        planes: &Planes,
        bindings: [(&str, StorageId); 2],
    ) -> Launch {
        let count = cx.outputs[0].tensor.numel();
        let mut bound = map::Bindings::default();
        for (name, storage) in bindings {
            bound.bind_named(name, storage, DType::F32);
        }
        let sizes = [planes.input, planes.output, planes.factors];
        let parameters = std::iter::once(count).chain(sizes.into_iter().flatten());
        let constants = vec![
            ("WORKGROUP".into(), WORKGROUP),
            ("LINEAR".into(), u32::from(self.mode == UpsampleMode::Linear)),
        ];
        bound.launch(
            name,
            constants,
            vec![],
            cx.capabilities.fold_groups((count as u64).div_ceil(u64::from(WORKGROUP))),
            parameters.map(|x| x as u32).collect(),
        )
    }

    /// Calls `f(output position, input position, share)` for a plane. For the
    /// references.
    fn walk(&self, planes: &Planes, mut f: impl FnMut(usize, usize, f64)) {
        // The two inputs that an output takes along a dimension, with shares.
        let sources = |d: usize, o: usize| -> [(usize, f64); 2] {
            let (factor, size) = (planes.factors[d], planes.input[d]);
            if self.mode == UpsampleMode::Nearest {
                return [(o / factor, 1.0), (0, 0.0)];
            }
            let position = ((o as f64 + 0.5) / factor as f64 - 0.5).max(0.0);
            let low = position.floor() as usize;
            let share = position - position.floor();
            [(low, 1.0 - share), ((low + 1).min(size - 1), share)]
        };
        let ([_, height, width], [_, h, w]) = (planes.input, planes.output);
        for o in 0..shape::numel(&planes.output) {
            for (z, a) in sources(0, o / (h * w)) {
                for (y, b) in sources(1, o / w % h) {
                    for (x, c) in sources(2, o % w) {
                        if a * b * c != 0.0 {
                            f(o, (z * height + y) * width + x, a * b * c);
                        }
                    }
                }
            }
        }
    }
}

impl Operation for Upsample {
    fn name(&self) -> &'static str {
        "upsample"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("upsample", inputs, 1)?;
        super::expect_dtype("upsample", &inputs[0], DType::F32)?;
        let input = &inputs[0].shape;
        let planes = self.planes("upsample", input)?;
        let mut shape = input[..2].to_vec();
        shape.extend(&planes.output[5 - input.len()..]);
        Ok(vec![TensorType::f32(shape)])
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
        let op = Op::UpsampleGradient(UpsampleGradient { forward: self.clone() });
        Ok(vec![Some(cx.emit(op, &[g])?[0])])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: outputs[0].numel() as u64 * 8, bytes: inputs[0].bytes() + outputs[0].bytes() }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shape = &cx.inputs[0].tensor.shape;
        let planes = self.planes("upsample", shape).expect("was inferred");
        let bindings = [("x", cx.inputs[0].storage), ("y", cx.outputs[0].storage)];
        vec![self.launch("upsample", cx, &planes, bindings)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let t = TensorType::f32(inputs[0].shape.clone());
        let out = self.infer(std::slice::from_ref(&t)).expect("was inferred").remove(0);
        let planes = self.planes("upsample", &t.shape).expect("was inferred");
        let (size, count) = (shape::numel(&planes.input), shape::numel(&planes.output));
        let mut values = vec![0.0; out.numel()];
        for plane in 0..planes.count {
            self.walk(&planes, |o, i, share| {
                values[plane * count + o] += share * inputs[0].values[plane * size + i];
            });
        }
        vec![Tensor64::new(&out, values)]
    }
}

impl Operation for UpsampleGradient {
    fn name(&self) -> &'static str {
        "upsample_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "upsample_gradient";
        super::expect_inputs(op, inputs, 1)?;
        super::expect_dtype(op, &inputs[0], DType::F32)?;
        let input = self.forward.input_shape(op, &inputs[0].shape)?;
        self.forward.planes(op, &input)?;
        Ok(vec![TensorType::f32(input)])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost { flops: inputs[0].numel() as u64 * 8, bytes: inputs[0].bytes() + outputs[0].bytes() }
    }

    /// Each element looks at the outputs that it has a share in, in order.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shape = &cx.outputs[0].tensor.shape;
        let planes = self.forward.planes("upsample_gradient", shape).expect("was inferred");
        let bindings = [("gradient", cx.inputs[0].storage), ("out", cx.outputs[0].storage)];
        vec![self.forward.launch("upsample_gradient", cx, &planes, bindings)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let op = "upsample_gradient";
        let shape = self.forward.input_shape(op, &inputs[0].shape).expect("was inferred");
        let planes = self.forward.planes(op, &shape).expect("was inferred");
        let (size, count) = (shape::numel(&planes.input), shape::numel(&planes.output));
        let mut values = vec![0.0; planes.count * size];
        for plane in 0..planes.count {
            self.forward.walk(&planes, |o, i, share| {
                values[plane * size + i] += share * inputs[0].values[plane * count + o];
            });
        }
        vec![Tensor64 { shape, values, dtype: DType::F32 }]
    }
}
