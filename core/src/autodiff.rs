//! Reverse-mode differentiation from graph to graph.

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, Phase, Source};
use crate::ops::{Emit, ValueId};

/// Adds the backward pass: given values with their gradients, emits those of
/// `wanted` (`None` where a value has no influence).
pub fn backward(
    g: &mut Graph,
    seeds: &[(ValueId, ValueId)],
    wanted: &[ValueId],
) -> Result<Vec<Option<ValueId>>> {
    let phase = std::mem::replace(&mut g.phase, Phase::Backward);
    let count = g.values.len();
    let mut needs = vec![false; count];
    wanted.iter().for_each(|v| needs[v.0 as usize] = true);
    let nodes = g.nodes.len();
    for node in &g.nodes {
        if node.inputs.iter().any(|i| needs[i.0 as usize]) {
            let passed = node.outputs.iter().filter(|o| !g.stopped.contains(o));
            passed.for_each(|o| needs[o.0 as usize] = true);
        }
    }
    let mut gradients: Vec<Option<ValueId>> = vec![None; count];
    for (value, gradient) in seeds {
        add(g, &mut gradients[value.0 as usize], *gradient)?;
    }
    for n in (0..nodes).rev() {
        let node = g.nodes[n].clone();
        let given: Vec<Option<ValueId>> =
            node.outputs.iter().map(|o| gradients[o.0 as usize]).collect();
        if node.outputs.iter().any(|o| g.stopped.contains(o)) {
            continue;
        }
        let wanted: Vec<bool> = node
            .inputs
            .iter()
            .map(|i| needs[i.0 as usize] && g.value(*i).tensor.dtype == DType::F32)
            .collect();
        if given.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        let scope = match node.label.rsplit_once('.') {
            Some((scope, _)) => scope.split('.').map(str::to_string).collect(),
            None => Vec::new(),
        };
        let mut scope: Vec<String> = scope;
        scope.push("grad".to_string());
        let old = g.replace_scope(scope);
        let made = node.op.vjp(g, &node.inputs, &node.outputs, &given, &wanted);
        for ((input, made), wanted) in node.inputs.iter().zip(made?).zip(wanted) {
            if let Some(gradient) = made.filter(|_| wanted) {
                add(g, &mut gradients[input.0 as usize], gradient)?;
            }
        }
        g.replace_scope(old);
    }
    g.phase = phase;
    Ok(wanted.iter().map(|v| gradients[v.0 as usize]).collect())
}

/// The trained leaves in order of their names.
pub fn parameters(g: &Graph) -> Vec<ValueId> {
    let is_parameter =
        |v: &ValueId| matches!(g.value(*v).source, Source::Leaf(crate::graph::Leaf::Parameter(_)));
    g.leaves().values().copied().filter(is_parameter).collect()
}

fn add(g: &mut Graph, slot: &mut Option<ValueId>, gradient: ValueId) -> Result<()> {
    *slot = Some(match *slot {
        None => gradient,
        Some(old) => {
            debug_assert_eq!(g.tensor_type(old), g.tensor_type(gradient));
            g.map(&[old, gradient], |x| &x[0] + &x[1])?
        }
    });
    Ok(())
}
