//! Running a graph once on a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::graph::{Graph, Init, Leaf, Source};
use crate::ledger::{Class, Ledger};
use crate::ops::{Tensor64, TensorType, ValueId};
use crate::planner::liveness::Layout;
use crate::planner::{PartKind, search, verify};
use crate::program::finish;
use crate::{DType, Device, Result};

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
    let plan = Arc::new(search::place(
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
        let bytes = to_bytes(value);
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
        out.push(from_bytes(tensor, &bytes));
    }
    Ok(out)
}

/// A tensor as the device stores it.
pub fn to_bytes(t: &Tensor64) -> Vec<u8> {
    match t.dtype {
        DType::U8 => t.values.iter().map(|x| *x as u8).collect(),
        DType::I32 => t.values.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        DType::U32 => t.values.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        _ => t.values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
    }
}

fn from_bytes(t: &TensorType, bytes: &[u8]) -> Tensor64 {
    let words = bytes.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]);
    let values = match t.dtype {
        DType::I32 => words.map(|w| f64::from(i32::from_le_bytes(w))).collect(),
        DType::U32 => words.map(|w| f64::from(u32::from_le_bytes(w))).collect(),
        _ => words.map(|w| f64::from(f32::from_le_bytes(w))).collect(),
    };
    Tensor64::new(t, values)
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
