//! A part by another schedule: some ops run again, others later.

use super::{PartProgram, ProgramNode};
use crate::error::{Error, Result};

/// The part whose ops run as listed, by position; an op listed again makes its
/// values anew, and whoever comes after it reads the newest.
///
/// # Errors
/// A schedule that reads what was not made, or repeats what stores into a leaf.
pub fn reschedule(part: &PartProgram, runs: &[usize]) -> Result<PartProgram> {
    let mut values = part.values.clone();
    // For each value of the part, the one that holds its newest instance.
    let mut newest: Vec<Option<usize>> =
        values.iter().enumerate().map(|(v, value)| value.leaf.is_some().then_some(v)).collect();
    let mut has_run = vec![false; part.nodes.len()];
    let mut nodes = Vec::with_capacity(runs.len());
    for &n in runs {
        let mut node: ProgramNode = part.nodes[n].clone();
        let missing = || Error::Plan(format!("{} runs before its inputs exist", node.label));
        let inputs: Option<Vec<usize>> = node.inputs.iter().map(|u| newest[u.value]).collect();
        let inputs = inputs.ok_or_else(missing)?;
        node.inputs.iter_mut().zip(inputs).for_each(|(u, v)| u.value = v);
        node.again = std::mem::replace(&mut has_run[n], true);
        for u in &mut node.outputs {
            let original = u.value;
            if node.again {
                if part.values[original].assigned.is_some() {
                    return Err(Error::Plan(format!("{} stores twice", node.label)));
                }
                values.push(part.values[original].clone());
                u.value = values.len() - 1;
            }
            newest[original] = Some(u.value);
        }
        nodes.push(node);
    }
    Ok(PartProgram { kind: part.kind, nodes, values })
}
