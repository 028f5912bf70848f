//! Execution order: a topological order of a part's ops that keeps the peak low.
//!
//! Two orders are tried and the one with the lower peak is taken: the traced
//! order with weight updates as early as they can run, and a greedy one that
//! always runs the op that frees the most. A node that stores into a leaf runs
//! after all other readers of the leaf's old content.

use std::collections::BTreeSet;

use super::{PartProgram, writers};
use crate::error::{Error, Result};
use crate::graph::Phase;
use crate::launch::Capabilities;

/// Sorts the part's nodes.
pub fn order(part: &mut PartProgram) -> Result<()> {
    let constraints = Constraints::of(part);
    let traced = constraints.schedule(part, false)?;
    let greedy = constraints.schedule(part, true)?;
    let best = if peak_bytes(part, &greedy) < peak_bytes(part, &traced) { greedy } else { traced };
    let mut nodes: Vec<Option<_>> = part.nodes.drain(..).map(Some).collect();
    part.nodes = best.into_iter().filter_map(|n| nodes[n].take()).collect();
    Ok(())
}

struct Constraints {
    /// For each node, those that must run later.
    successors: Vec<BTreeSet<usize>>,
    /// For each node, how many must run before it.
    predecessors: Vec<usize>,
}

impl Constraints {
    fn of(part: &PartProgram) -> Constraints {
        let count = part.nodes.len();
        let mut successors = vec![BTreeSet::new(); count];
        let mut producer = vec![None; part.values.len()];
        for (n, node) in part.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|u| producer[u.value] = Some(n));
        }
        let writers = writers(part);
        for (n, node) in part.nodes.iter().enumerate() {
            for u in &node.inputs {
                if let Some(p) = producer[u.value] {
                    successors[p].insert(n);
                }
                if let Some(writer) = writers.get(&u.value).filter(|w| **w != n) {
                    successors[n].insert(*writer);
                }
            }
        }
        let mut predecessors = vec![0; count];
        successors.iter().flatten().for_each(|s| predecessors[*s] += 1);
        Constraints { successors, predecessors }
    }

    fn schedule(&self, part: &PartProgram, greedy: bool) -> Result<Vec<usize>> {
        let mut waiting = self.predecessors.clone();
        let mut uses = use_counts(part);
        let mut ready: BTreeSet<usize> = (0..waiting.len()).filter(|n| waiting[*n] == 0).collect();
        let mut out = Vec::with_capacity(waiting.len());
        while !ready.is_empty() {
            let key = |n: usize| {
                if greedy {
                    (growth(part, &uses, n), n)
                } else {
                    let early = part.nodes[n].phase == Phase::Update;
                    (if early { 0 } else { 1 }, n)
                }
            };
            let next = *ready.iter().min_by_key(|n| key(**n)).expect("not empty");
            ready.remove(&next);
            part.nodes[next].inputs.iter().for_each(|u| uses[u.value] -= 1);
            for s in &self.successors[next] {
                waiting[*s] -= 1;
                if waiting[*s] == 0 {
                    ready.insert(*s);
                }
            }
            out.push(next);
        }
        if out.len() < waiting.len() {
            return Err(Error::Plan("the step program has a cycle".into()));
        }
        Ok(out)
    }
}

fn use_counts(part: &PartProgram) -> Vec<usize> {
    let mut uses = vec![0; part.values.len()];
    part.nodes.iter().flat_map(|n| &n.inputs).for_each(|u| uses[u.value] += 1);
    uses
}

/// Change of live bytes by running node `n` now.
fn growth(part: &PartProgram, uses: &[usize], n: usize) -> i64 {
    let node = &part.nodes[n];
    let bytes = |v: usize| part.values[v].bytes as i64;
    let mut growth: i64 = node
        .outputs
        .iter()
        .filter(|u| part.is_transient(u.value) && uses[u.value] > 0)
        .map(|u| bytes(u.value))
        .sum();
    let mut seen = BTreeSet::new();
    for u in &node.inputs {
        let here = node.inputs.iter().filter(|i| i.value == u.value).count();
        if part.is_transient(u.value) && uses[u.value] == here && seen.insert(u.value) {
            growth -= bytes(u.value);
        }
    }
    growth
}

/// Most transient bytes live at once in this order.
fn peak_bytes(part: &PartProgram, order: &[usize]) -> i64 {
    let mut uses = use_counts(part);
    let mut live: i64 = (0..part.values.len())
        .filter(|v| part.values[*v].leaf.is_some() && part.is_transient(*v) && uses[*v] > 0)
        .map(|v| part.values[v].bytes as i64)
        .sum();
    let mut peak = live;
    for &n in order {
        let node = &part.nodes[n];
        let made: i64 = node
            .outputs
            .iter()
            .filter(|u| part.is_transient(u.value))
            .map(|u| part.values[u.value].bytes as i64)
            .sum();
        let workspace =
            node.op.workspace_bytes(&node.input_types(), &Capabilities::PORTABLE) as i64;
        peak = peak.max(live + made + workspace);
        live += growth(part, &uses, n);
        node.inputs.iter().for_each(|u| uses[u.value] -= 1);
    }
    peak
}
