//! The independent checker: proves a plan before it runs.
//!
//! It knows nothing of how plans are made. It executes the plan on symbols:
//! each write marks a range of the arena with the value written, each read
//! asks whether that value is still whole. A step is executed twice, with the
//! evaluation in between, so that what must survive is seen to survive.

use std::collections::{BTreeMap, BTreeSet};

use super::{PartKind, Plan};
use crate::error::{Error, Result};
use crate::launch::{PARAMETER_WORDS, StorageId};

/// What a range of the arena holds: which storage, and which value in it.
type Mark = (StorageId, u64);

struct Arena<'a> {
    plan: &'a Plan,
    /// For each page: start → (end, mark), not overlapping.
    pages: Vec<BTreeMap<u64, (u64, Mark)>>,
    /// Storages read under their leaf's mark: all that is handed from part to
    /// part.
    carried: BTreeSet<StorageId>,
}

/// Checks that the plan keeps to `budget_bytes`, that every tensor lies within
/// its page, and that every input is whole when it is read.
///
/// # Errors
/// [`Error::Plan`] naming the first fault.
pub fn verify(plan: &Plan, budget_bytes: u64) -> Result<()> {
    sizes(plan, budget_bytes)?;
    let carried = plan
        .parts
        .iter()
        .flat_map(|p| &p.nodes)
        .flat_map(|n| n.inputs.iter().zip(&n.input_values))
        .filter(|(o, v)| u64::from(**v) == leaf_mark(o.storage))
        .map(|(o, _)| o.storage)
        .collect();
    let mut arena = Arena { plan, pages: vec![BTreeMap::new(); plan.pages.len()], carried };
    for leaf in plan.leaves.values() {
        let storage = leaf.operand.storage;
        arena.write(storage, leaf_mark(storage));
    }
    let mut order: Vec<usize> = Vec::new();
    let step: Vec<usize> = plan
        .part(PartKind::Begin)
        .into_iter()
        .chain(plan.micro_batches.iter().map(|m| m.part))
        .chain(plan.part(PartKind::Update))
        .collect();
    let evaluate = (0..plan.parts.len()).filter(|p| !plan.parts[*p].kind.trains());
    order.extend(&step);
    order.extend(evaluate.clone().flat_map(|p| [p, p]));
    order.extend(&step);
    for (run, part) in order.into_iter().enumerate() {
        arena.run(part, run as u64)?;
        // Whoever looks between two parts finds every leaf whole.
        for leaf in plan.leaves.values() {
            let storage = leaf.operand.storage;
            arena.read(storage, leaf_mark(storage), "who looks between two parts")?;
        }
    }
    Ok(())
}

fn fault<T>(message: String) -> Result<T> {
    Err(Error::Plan(message))
}

fn sizes(plan: &Plan, budget_bytes: u64) -> Result<()> {
    let device = &plan.device;
    for (page, bytes) in plan.pages.iter().enumerate() {
        if *bytes > device.page_bytes {
            return fault(format!("page {page} of {bytes} bytes exceeds {}", device.page_bytes));
        }
    }
    for s in &plan.storages {
        let end = s.offset_bytes.checked_add(s.bytes);
        let page = plan.pages.get(s.page).copied().unwrap_or(0);
        if end.is_none_or(|end| end > page) || s.offset_bytes % device.alignment_bytes != 0 {
            return fault(format!("{} lies at {} of page {}", s.name, s.offset_bytes, s.page));
        }
    }
    let requested: u64 = plan.requests.iter().map(|r| r.bytes).sum();
    let arena: u64 = plan.pages.iter().sum();
    if requested != plan.peak_bytes || arena != plan.arena_bytes || requested < arena {
        return fault(format!("requests sum up to {requested}, planned {}", plan.peak_bytes));
    }
    // Pages come first, each with a request of its own.
    let granted = plan.requests.iter().map(|r| r.bytes);
    if !granted.take(plan.pages.len()).eq(plan.pages.iter().copied()) {
        return fault("the first requests are not the arena's pages".into());
    }
    if requested > budget_bytes {
        return fault(format!("requests sum up to {requested}, the budget is {budget_bytes}"));
    }
    let slots = plan.requests.iter().filter(|r| r.what.starts_with("staging slot"));
    for part in plan.parts.iter().filter(|_| device.staging_slots > 0) {
        let upload: u64 = part.inputs.iter().map(|(_, o)| plan.storages[o.storage].bytes).sum();
        let fitting = slots.clone().filter(|slot| slot.bytes >= upload).count() as u64;
        if fitting < device.staging_slots {
            return fault(format!("{upload} bytes to upload do not fit into each staging slot"));
        }
    }
    let nodes = plan.parts.iter().flat_map(|p| &p.nodes);
    for node in nodes.clone() {
        let made = node.op.infer(&super::types(&node.inputs))?;
        let fits = |(t, o): (&crate::ops::TensorType, &crate::ops::Operand)| {
            (t.dtype, t.numel()) == (o.tensor.dtype, o.tensor.numel())
        };
        if made.len() != node.outputs.len() || !made.iter().zip(&node.outputs).all(fits) {
            return fault(format!("{} does not make its outputs", node.label));
        }
        if super::lower(device, node, None).iter().any(|l| l.parameters.len() > PARAMETER_WORDS) {
            return fault(format!("{} has too many parameters", node.label));
        }
        let needed =
            node.op.workspace_bytes(&super::types(&node.inputs), &plan.device.capabilities);
        let given = node.workspace.and_then(|w| plan.storages.get(w)).map_or(0, |s| s.bytes);
        if given < needed {
            return fault(format!("{} needs {needed} bytes of workspace", node.label));
        }
    }
    for o in nodes.flat_map(|n| n.inputs.iter().chain(&n.outputs)) {
        if plan.storages.get(o.storage).is_none_or(|s| s.bytes < o.tensor.bytes()) {
            return fault(format!("storage {} is too small for {:?}", o.storage, o.tensor));
        }
    }
    Ok(())
}

/// Marks of leaves do not depend on the run.
fn leaf_mark(storage: StorageId) -> u64 {
    u64::from(u32::MAX - storage as u32)
}

impl Arena<'_> {
    fn range(&self, storage: StorageId) -> (usize, u64, u64) {
        let s = &self.plan.storages[storage];
        (s.page, s.offset_bytes, s.offset_bytes + s.bytes)
    }

    fn overlap(&self, a: StorageId, b: StorageId) -> bool {
        let ((p, a0, a1), (q, b0, b1)) = (self.range(a), self.range(b));
        p == q && a0 < b1 && b0 < a1
    }

    fn write(&mut self, storage: StorageId, value: u64) {
        let (page, start, end) = self.range(storage);
        let page = &mut self.pages[page];
        // Whatever it touches is broken as a whole.
        let broken: Vec<u64> =
            page.range(..end).rev().take_while(|(_, (e, _))| *e > start).map(|(s, _)| *s).collect();
        broken.iter().for_each(|s| {
            page.remove(s);
        });
        page.insert(start, (end, (storage, value)));
    }

    fn read(&self, storage: StorageId, value: u64, reader: &str) -> Result<()> {
        let (page, start, end) = self.range(storage);
        if self.pages[page].get(&start) == Some(&(end, (storage, value))) {
            return Ok(());
        }
        fault(format!(
            "{reader} reads {}, which is not whole there",
            self.plan.storages[storage].name
        ))
    }

    fn run(&mut self, part: usize, run: u64) -> Result<()> {
        let plan = self.plan;
        let part = &plan.parts[part];
        // Values within a part are new in each run; leaves keep their marks.
        let mark = |value: u32, storage: StorageId| {
            let leaf = u64::from(value) == leaf_mark(storage);
            if leaf { u64::from(value) } else { (run + 1) << 32 | u64::from(value) }
        };
        // An uploaded value is known by its first reader's name for it.
        for (name, operand) in &part.inputs {
            let reader = part.nodes.iter().find_map(|n| {
                let k = n.inputs.iter().position(|o| o.storage == operand.storage)?;
                Some(n.input_values[k])
            });
            let Some(value) = reader else {
                return fault(format!("input {name} is uploaded and never read"));
            };
            self.write(operand.storage, mark(value, operand.storage));
        }
        let mut stored: Vec<(StorageId, u64)> = Vec::new();
        for node in &part.nodes {
            let types = super::types(&node.inputs);
            if node.inputs.len() != node.input_values.len()
                || node.outputs.len() != node.output_values.len()
            {
                return fault(format!("{} does not name its values", node.label));
            }
            for (o, value) in node.inputs.iter().zip(&node.input_values) {
                let is_leaf = u64::from(*value) == leaf_mark(o.storage);
                if is_leaf && stored.iter().any(|(s, _)| *s == o.storage) {
                    return fault(format!("{} reads a leaf after it was stored into", node.label));
                }
                self.read(o.storage, mark(*value, o.storage), &node.label)?;
            }
            for (j, o) in node.outputs.iter().enumerate() {
                let clash = node.inputs.iter().enumerate().any(|(k, i)| {
                    self.overlap(i.storage, o.storage)
                        && (i.storage != o.storage || !node.op.may_alias(&types, k, j))
                });
                let twice =
                    node.outputs[..j].iter().any(|other| self.overlap(other.storage, o.storage));
                if clash || twice {
                    return fault(format!("{} overwrites what it reads or writes", node.label));
                }
            }
            if let Some(w) = node.workspace {
                let tensors = node.inputs.iter().chain(&node.outputs);
                if tensors.map(|o| o.storage).any(|s| self.overlap(s, w)) {
                    return fault(format!("the workspace of {} overlaps its tensors", node.label));
                }
                self.write(w, u64::MAX);
            }
            for (o, value) in node.outputs.iter().zip(&node.output_values) {
                self.write(o.storage, mark(*value, o.storage));
                if plan.storages[o.storage].persistent || self.carried.contains(&o.storage) {
                    stored.push((o.storage, mark(*value, o.storage)));
                }
            }
            // Freed memory may not be read again.
            for s in &node.frees {
                self.write(*s, u64::MAX);
            }
        }
        // What was stored into a leaf, and is still whole, is the leaf's
        // content from now on.
        for (storage, value) in stored {
            self.read(storage, value, "the next part")?;
            self.write(storage, leaf_mark(storage));
        }
        Ok(())
    }
}
