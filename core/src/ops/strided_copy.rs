//! The kernel behind `permute`, `slice`, `pad` and `concat`: walks one index
//! space and copies between two strided places. Elements are whole words.

use super::{Operand, map};
use crate::dtype::DType;
use crate::expression::{E, Expression};
use crate::launch::{Capabilities, Launch};
use crate::shape;

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 64;

/// A copy over `shape`: element at Σ index × `from_strides` + `from_offset`
/// goes to Σ index × `to_strides` + `to_offset`.
pub struct StridedCopy {
    /// The index space.
    pub shape: Vec<usize>,
    /// First element read.
    pub from_offset: usize,
    /// Strides of the source, in elements.
    pub from_strides: Vec<usize>,
    /// First element written.
    pub to_offset: usize,
    /// Strides of the destination, in elements.
    pub to_strides: Vec<usize>,
}

impl StridedCopy {
    /// Parameters: count, rank, both offsets, then sizes, source strides and
    /// destination strides, each `rank` words.
    pub fn launch(&self, from: &Operand, to: &Operand, capabilities: &Capabilities) -> Launch {
        let rows = [self.from_strides.clone(), self.to_strides.clone()];
        let (sizes, rows) = shape::collapse(&self.shape, &rows);
        let count = shape::numel(&self.shape);
        let mut parameters =
            [count, sizes.len(), self.from_offset, self.to_offset].map(|x| x as u32).to_vec();
        parameters.extend(sizes.iter().chain(&rows[0]).chain(&rows[1]).map(|x| *x as u32));
        let mut bound = map::Bindings::default();
        // Words are copied unseen, whatever they mean.
        bound.bind_named("source", from.storage, DType::U32);
        bound.bind_named("destination", to.storage, DType::U32);
        let groups = capabilities.fold_groups((count as u64).div_ceil(u64::from(WORKGROUP)));
        bound.launch(
            "strided_copy",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            groups,
            parameters,
        )
    }

    /// Runs it on host values, for the references.
    pub fn run(&self, from: &[f64], to: &mut [f64]) {
        for i in 0..shape::numel(&self.shape) {
            let (mut rest, mut source, mut target) = (i, self.from_offset, self.to_offset);
            for d in (0..self.shape.len()).rev() {
                let c = rest % self.shape[d];
                rest /= self.shape[d];
                source += c * self.from_strides[d];
                target += c * self.to_strides[d];
            }
            to[target] = from[source];
        }
    }
}

/// A launch that writes zeros over a whole tensor of words.
pub fn zero(to: &Operand, capabilities: &Capabilities) -> Launch {
    let expression = match to.tensor.dtype {
        DType::I32 => Expression::new(vec![], &[E::i32(0)]),
        DType::U32 => Expression::new(vec![], &[E::u32(0)]),
        _ => Expression::new(vec![], &[E::constant(0.0)]),
    };
    let mut bound = map::Bindings::default();
    let mut parameters = vec![to.tensor.numel() as u32];
    let body = map::body(
        "evaluate",
        &expression,
        &[],
        std::slice::from_ref(to),
        &to.tensor.shape,
        &mut bound,
        &mut parameters,
    );
    let groups =
        capabilities.fold_groups((to.tensor.numel() as u64).div_ceil(u64::from(map::WORKGROUP)));
    bound.launch("map", vec![("WORKGROUP".into(), map::WORKGROUP)], vec![body], groups, parameters)
}
