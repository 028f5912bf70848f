//! Running a graph once on a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::graph::{Graph, Init, Leaf, Source};
use crate::ledger::{Class, Ledger};
use crate::ops::{Tensor64, ValueId};
use crate::planner::liveness::Layout;
use crate::planner::{PartKind, place, verify};
use crate::program::finish;
use crate::{Device, Result};

/// What came out of a graph, in the order asked for.
pub type Outputs = Vec<Tensor64>;

/// Runs `g` once on a device and returns `outputs`. `leaves` gives the content
/// of input and parameter leaves by name; all other memory starts as NaN.
///
/// The graph goes through fusion, ordering, planning and checking like any
/// step. Outputs are stored into leaves of their own.
///
/// # Errors
/// Whatever planning, checking or the device reports.
pub fn execute(
    device: &Arc<dyn Device>,
    mut g: Graph,
    leaves: &BTreeMap<String, Tensor64>,
    outputs: &[ValueId],
) -> Result<Outputs> {
    let mut names = Vec::new();
    for (j, value) in outputs.iter().enumerate() {
        let tensor = g.value(*value).tensor.clone();
        let name = format!("output.{j}");
        let leaf = g.leaf(&name, tensor.clone(), Leaf::State(Init::Zeros, Class::State))?;
        g.assign(leaf, *value)?;
        names.push((name, tensor));
    }
    let program = finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new())?;
    let plan = Arc::new(place::place(
        Layout::new(&[program], &device.description().capabilities)?,
        device.description(),
    )?);
    verify::verify(&plan, plan.peak_bytes)?;
    let ledger = Ledger::new(plan.peak_bytes);
    let mut executor = device.load(&plan, &ledger)?;
    for (id, storage) in plan.storages.iter().enumerate() {
        executor.write(id, 0, &vec![0xff; storage.bytes as usize])?;
    }
    let mut uploads = Vec::new();
    for (name, value) in leaves {
        let bytes = value.to_bytes();
        let padded = || {
            let mut b = bytes.clone();
            b.resize(b.len().next_multiple_of(4), 0);
            b
        };
        if let Some((_, operand)) = plan.parts[0].inputs.iter().find(|(n, _)| n == name) {
            uploads.push((operand.storage, bytes));
        } else if let Some(leaf) = plan.leaves.get(name) {
            executor.write(leaf.operand.storage, 0, &padded())?;
        }
    }
    let uploads: Vec<(usize, &[u8])> = uploads.iter().map(|(s, b)| (*s, b.as_slice())).collect();
    executor.run(0, &uploads)?;
    let mut out = Vec::new();
    for (name, tensor) in &names {
        let mut bytes = vec![0; tensor.bytes() as usize];
        executor.read(plan.leaves[name].operand.storage, 0, &mut bytes)?;
        out.push(Tensor64::from_bytes(tensor, &bytes));
    }
    Ok(out)
}

/// Evaluates `outputs` of a graph by the ops' float64 references.
pub fn reference(g: &Graph, leaves: &BTreeMap<String, Tensor64>, outputs: &[ValueId]) -> Outputs {
    let mut values: Vec<Option<Tensor64>> = g
        .values
        .iter()
        .map(|v| match v.source {
            Source::Leaf(_) => leaves.get(&v.name).cloned(),
            Source::Node(..) => None,
        })
        .collect();
    for node in &g.nodes {
        let inputs: Vec<Tensor64> = node
            .inputs
            .iter()
            .map(|i| values[i.0 as usize].clone().expect("every leaf has content"))
            .collect();
        for (o, value) in node.outputs.iter().zip(node.op.reference(&inputs)) {
            values[o.0 as usize] = Some(value);
        }
    }
    outputs.iter().map(|o| values[o.0 as usize].clone().expect("computed")).collect()
}
