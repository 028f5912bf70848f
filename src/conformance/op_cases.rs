//! The op cases: forward and gradient.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::execute::execute;
use super::{Outcome, Test, bound, judge, normalised_error, worst};
use crate::graph::{Graph, Leaf, Mode};
use crate::ops::cases::{Case, cases};
use crate::ops::{Emit, Tensor64, TensorType, ValueId};
use crate::philox::{Stream, name_stream};
use crate::{DType, Device, Result, autodiff};

/// Inputs with at most this many elements have every coordinate differenced;
/// larger ones are differenced along random directions.
const EVERY_COORDINATE: usize = 48;
/// Random directions for a larger input.
const DIRECTIONS: usize = 3;

pub fn tests() -> Vec<Test> {
    let mut out = Vec::new();
    for case in cases() {
        let forward_case = case.clone();
        let name = format!("{}/forward", case.name);
        out.push(Test::new(name, move |device| forward(&forward_case, device)));
        let differentiable = case.inputs.iter().any(|(t, _)| t.dtype == DType::F32);
        if case.gradient && differentiable {
            let name = format!("{}/gradient", case.name);
            out.push(Test::new(name, move |device| gradient(&case, device)));
        }
    }
    out
}

/// A graph of the case's op on inputs `in.0`, `in.1`, ….
fn trace(case: &Case) -> Result<(Graph, Vec<ValueId>, Vec<ValueId>)> {
    let mut g = Graph::new(Mode::Train);
    let mut inputs = Vec::new();
    for (k, (t, _)) in case.inputs.iter().enumerate() {
        inputs.push(g.leaf(&format!("in.{k}"), t.clone(), Leaf::Input)?);
    }
    let outputs = g.emit(case.op.clone(), &inputs)?;
    Ok((g, inputs, outputs))
}

fn leaves(data: &[Tensor64]) -> BTreeMap<String, Tensor64> {
    data.iter().enumerate().map(|(k, t)| (format!("in.{k}"), t.clone())).collect()
}

fn forward(case: &Case, device: &Arc<dyn Device>) -> Result<Outcome> {
    let (g, _, outputs) = trace(case)?;
    let data = case.data();
    let got = execute(device, g, &leaves(&data), &outputs)?;
    let expected = case.op.reference(&data);
    let limit = bound(case.terms, case.function_ulps);
    Ok(worst(got.iter().zip(&expected).enumerate().map(|(j, (x, r))| {
        // Integers must be exact, and so must be outputs that only choose.
        let limit = if r.dtype == DType::F32 { limit } else { 0.0 };
        judge(&format!("output {j}"), normalised_error(&x.values, &r.values), limit)
    })))
}

/// Output weights of the loss Σⱼ Σ wⱼ·outⱼ; `None` for outputs without gradient.
fn weights(case: &Case, outputs: &[TensorType]) -> Vec<Option<Tensor64>> {
    outputs
        .iter()
        .enumerate()
        .map(|(j, t)| {
            if t.dtype != DType::F32 || !case.op.differentiable(j) {
                return None;
            }
            let mut s = Stream::new(1000 + j as u64, name_stream(&case.name));
            Some(Tensor64::new(t, (0..t.numel()).map(|_| f64::from(s.normal())).collect()))
        })
        .collect()
}

fn gradient(case: &Case, device: &Arc<dyn Device>) -> Result<Outcome> {
    let (mut g, inputs, outputs) = trace(case)?;
    let data = case.data();
    let mut content = leaves(&data);
    let types: Vec<TensorType> = outputs.iter().map(|o| g.tensor_type(*o)).collect();
    let weights = weights(case, &types);
    let mut seeds = Vec::new();
    for (j, weight) in weights.iter().enumerate() {
        if let Some(weight) = weight {
            let name = format!("weight.{j}");
            seeds.push((outputs[j], g.leaf(&name, types[j].clone(), Leaf::Input)?));
            content.insert(name, weight.clone());
        }
    }
    let floats: Vec<usize> = (0..data.len()).filter(|k| data[*k].dtype == DType::F32).collect();
    let wanted: Vec<ValueId> = floats.iter().map(|k| inputs[*k]).collect();
    let gradients = autodiff::backward(&mut g, &seeds, &wanted)?;
    // Every float input of a case has a gradient.
    let Some(present) = gradients.into_iter().collect::<Option<Vec<ValueId>>>() else {
        return Ok(Outcome::Failed { message: "a float input was given no gradient".into() });
    };
    let got = execute(device, g, &content, &present)?;
    let loss = |data: &[Tensor64]| -> f64 {
        let out = case.op.reference(data);
        let weighted = out.iter().zip(&weights).filter_map(|(o, w)| Some((o, w.as_ref()?)));
        weighted.map(|(o, w)| dot(&o.values, &w.values)).sum()
    };
    let limit = bound(case.gradient_terms, case.function_ulps);
    Ok(worst(floats.iter().zip(&got).map(|(k, gradient)| {
        let what = format!("gradient of input {k}");
        if gradient.values.len() <= EVERY_COORDINATE {
            let expected = coordinates(&loss, &data, *k);
            judge(&what, normalised_error(&gradient.values, &expected), limit + DIFFERENCE)
        } else {
            directions(&what, &loss, &data, *k, gradient, limit)
        }
    })))
}

/// Normalised mean square error of the differences themselves: the truncation
/// error h⁴f⁽⁵⁾/30 with h = 10⁻³ is about 10⁻¹³ of the gradient, rounding
/// about 10⁻¹³ for sums of the lengths here; squared, with room.
const DIFFERENCE: f64 = 1e-20;

/// dL/dt at t = 0 of L(data + t·direction), by a central difference of fourth
/// order.
fn difference(
    loss: &impl Fn(&[Tensor64]) -> f64,
    data: &[Tensor64],
    k: usize,
    direction: &[f64],
) -> f64 {
    let h = 1e-3;
    let at = |t: f64| {
        let mut moved = data.to_vec();
        moved[k].values.iter_mut().zip(direction).for_each(|(x, d)| *x += t * d);
        loss(&moved)
    };
    (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h)
}

fn coordinates(loss: &impl Fn(&[Tensor64]) -> f64, data: &[Tensor64], k: usize) -> Vec<f64> {
    let n = data[k].values.len();
    (0..n)
        .map(|i| {
            let mut direction = vec![0.0; n];
            direction[i] = 1.0;
            difference(loss, data, k, &direction)
        })
        .collect()
}

/// Compares ⟨gradient, d⟩ with the difference along d, for random signs d. An
/// error δ of the gradient shows as ⟨δ, d⟩, whose mean square over the signs
/// is ‖δ‖²; so (⟨g, d⟩ − D)² / ‖g‖² is an estimate of the normalised error.
fn directions(
    what: &str,
    loss: &impl Fn(&[Tensor64]) -> f64,
    data: &[Tensor64],
    k: usize,
    gradient: &Tensor64,
    limit: f64,
) -> Outcome {
    let norm = dot(&gradient.values, &gradient.values);
    if !norm.is_finite() {
        return Outcome::Failed { message: format!("{what} holds NaN or infinity") };
    }
    let mut s = Stream::new(77, k as u32);
    worst((0..DIRECTIONS).map(|_| {
        let d: Vec<f64> = gradient
            .values
            .iter()
            .map(|_| if s.next_u32() & 1 == 0 { 1.0 } else { -1.0 })
            .collect();
        let off = dot(&gradient.values, &d) - difference(loss, data, k, &d);
        judge(what, off * off / norm.max(f64::MIN_POSITIVE), limit + DIFFERENCE)
    }))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}
