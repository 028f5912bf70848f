//! Layers with PyTorch's default initialisation and parameter names.

use crate::error::Result;
use crate::graph::{Graph, Init};
use crate::ops::ValueId;

/// y = x·Wᵀ + b with W [outputs, inputs]; both start uniform in ±1/√inputs.
pub fn linear(g: &mut Graph, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    let inputs = g.shape(x).last().copied().unwrap_or(1);
    let bound = 1.0 / (inputs as f32).sqrt();
    g.scoped(name, |g| {
        let weight = g.parameter("weight", &[outputs, inputs], Init::Uniform(bound))?;
        let bias = g.parameter("bias", &[outputs], Init::Uniform(bound))?;
        let y = g.matmul(x, weight, false, true)?;
        g.map(&[y, bias], |x| &x[0] + &x[1])
    })
}
