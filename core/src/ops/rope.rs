//! `rope`: rotary position embedding (J. Su et al., "RoFormer", 2021): pair i of
//! a head at position l is turned by the angle l · base^(−2i / D).
//!
//! Element i makes a pair with element i + D/2, as in the weights of Llama.
//! Angles are computed in 2⁻³² turns, modulo whole turns, in integers: the error
//! is at most l · 2⁻³³ turns, which is below that of an angle in f32, and every
//! device computes the same.

use serde::{Deserialize, Serialize};

use super::{Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Launch;

/// Pairs that one launch turns: their frequencies fit a parameter block.
const PAIRS: usize = 32;
/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// Input: [B, L, H, D] f32, D even. Output: the same, turned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// How far apart the frequencies are: 10 000 in the paper.
    pub base: f32,
    /// Whether it turns back, as the gradient does.
    pub inverse: bool,
}

impl Rope {
    /// Turns forward.
    pub fn new(base: f32) -> Rope {
        Rope { base, inverse: false }
    }

    /// Angle from one position to the next of each pair of a head of `size`
    /// elements, in 2⁻³² turns; negative, modulo 2³², when it turns back.
    pub fn frequencies(&self, size: usize) -> Vec<u32> {
        (0..size / 2)
            .map(|i| {
                let turns = self.angle(i, size) / std::f64::consts::TAU;
                // Below 2³², for the first is 1/τ of it.
                let frequency = (turns * 2f64.powi(32)).round() as u64 as u32;
                if self.inverse { frequency.wrapping_neg() } else { frequency }
            })
            .collect()
    }

    /// Radians from one position to the next.
    fn angle(&self, pair: usize, size: usize) -> f64 {
        f64::from(self.base).powf(-2.0 * pair as f64 / size as f64)
    }
}

impl Operation for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("rope", inputs, 1)?;
        super::expect_dtype("rope", &inputs[0], DType::F32)?;
        let shape = &inputs[0].shape;
        if shape.len() != 4 || !shape[3].is_multiple_of(2) {
            let message = format!("{shape:?}: expected [batch, length, heads, an even size]");
            return Err(Error::shape("rope", message));
        }
        if !(self.base >= 1.0 && self.base.is_finite()) {
            let message = format!("base {}: must be finite and at least 1", self.base);
            return Err(Error::shape("rope", message));
        }
        Ok(inputs.to_vec())
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        _inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0].filter(|_| wanted[0]) else { return Ok(vec![None]) };
        // A rotation's transpose is its inverse.
        let back = Rope { inverse: !self.inverse, ..self.clone() };
        Ok(vec![Some(cx.emit(Op::Rope(back), &[g])?[0])])
    }

    fn may_alias(&self, _inputs: &[TensorType], _k: usize, _j: usize) -> bool {
        true
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let shape = &cx.inputs[0].tensor.shape;
        let (length, heads, size) = (shape[1], shape[2], shape[3]);
        let rows = shape[0] * length * heads;
        let frequencies = self.frequencies(size);
        frequencies
            .chunks(PAIRS)
            .enumerate()
            .map(|(i, chunk)| {
                let sizes = [rows, length, heads, size, i * PAIRS, chunk.len()];
                let mut parameters: Vec<u32> = sizes.iter().map(|s| *s as u32).collect();
                parameters.extend(chunk);
                let mut bound = map::Bindings::default();
                bound.bind_named("x", cx.inputs[0].storage, DType::F32);
                bound.bind_named("out", cx.outputs[0].storage, DType::F32);
                let groups = ((rows * chunk.len()) as u64).div_ceil(u64::from(WORKGROUP));
                let groups = cx.capabilities.fold_groups(groups);
                let constants = vec![("WORKGROUP".into(), WORKGROUP)];
                bound.launch("rope", constants, vec![], groups, parameters)
            })
            .collect()
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let x = &inputs[0];
        let (length, heads, size) = (x.shape[1], x.shape[2], x.shape[3]);
        let mut out = x.clone();
        for row in 0..x.values.len() / size {
            let position = (row / heads % length) as f64;
            for i in 0..size / 2 {
                let angle = position * self.angle(i, size) * if self.inverse { -1.0 } else { 1.0 };
                let (sin, cos) = angle.sin_cos();
                let [first, second] = [row * size + i, row * size + size / 2 + i];
                let (a, b) = (x.values[first], x.values[second]);
                out.values[first] = a * cos - b * sin;
                out.values[second] = b * cos + a * sin;
            }
        }
        vec![out]
    }
}
