//! From parts to storages with lifetimes: joins leaves of all parts by name,
//! decides what is computed in place, and lays all parts on one timeline.
//!
//! The timeline runs through the parts in order. A part's first moment is its
//! upload, then comes one moment a node.

use std::collections::{BTreeMap, BTreeSet};

use super::{Part, PlannedLeaf, PlannedNode};
use crate::error::{Error, Result};
use crate::graph::{Init, Leaf};
use crate::launch::{Capabilities, StorageId};
use crate::ledger::Class;
use crate::ops::Operand;
use crate::program::{PartProgram, ProgramNode, Use};

/// A storage before it has a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The tensor's name.
    pub name: String,
    /// What it is for.
    pub class: Class,
    /// Its size.
    pub bytes: u64,
    /// Whether it keeps its content between steps.
    pub persistent: bool,
    /// First moment at which it holds something.
    pub start: usize,
    /// Last moment at which it is needed.
    pub end: usize,
}

/// All storages and the parts that use them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Storages; the position is the [`StorageId`].
    pub drafts: Vec<Draft>,
    /// Parts with operands resolved.
    pub parts: Vec<Part>,
    /// Persistent leaves by name.
    pub leaves: BTreeMap<String, PlannedLeaf>,
    /// Length of the timeline.
    pub moments: usize,
    /// For each moment, part and node (`None`: the part's upload).
    pub at: Vec<(usize, Option<usize>)>,
    capabilities: Capabilities,
}

impl Layout {
    /// Joins and places on the timeline, for a device of these capabilities.
    pub fn new(programs: &[PartProgram], capabilities: &Capabilities) -> Result<Layout> {
        let mut layout = Layout {
            drafts: Vec::new(),
            parts: Vec::new(),
            leaves: BTreeMap::new(),
            moments: 0,
            at: Vec::new(),
            capabilities: capabilities.clone(),
        };
        let mut accumulators: BTreeMap<String, StorageId> = BTreeMap::new();
        for (p, program) in programs.iter().enumerate() {
            for v in &program.values {
                if let Some(Leaf::Parameter(init) | Leaf::State(init, _)) = &v.leaf {
                    layout.persistent_leaf(v, init)?;
                }
            }
            layout.add_part(p, program, &mut accumulators);
        }
        let last = layout.moments.saturating_sub(1);
        for draft in layout.drafts.iter_mut().filter(|d| d.persistent) {
            (draft.start, draft.end) = (0, last);
        }
        // Accumulators live from the first training part to the last.
        let is_training = |at: &(usize, Option<usize>)| programs[at.0].kind.trains();
        let training = layout.at.iter().filter(|at| is_training(at)).count();
        for id in accumulators.values() {
            (layout.drafts[*id].start, layout.drafts[*id].end) = (0, training.saturating_sub(1));
        }
        Ok(layout)
    }

    fn persistent_leaf(
        &mut self,
        v: &crate::program::ProgramValue,
        init: &Init,
    ) -> Result<StorageId> {
        if let Some(old) = self.leaves.get(&v.name) {
            if old.operand.tensor.numel() != v.tensor.numel() {
                let message = format!(
                    "has shape {:?} in one part and {:?} in another",
                    old.operand.tensor.shape, v.tensor.shape
                );
                return Err(Error::shape(&v.name, message));
            }
            return Ok(old.operand.storage);
        }
        let storage = self.draft(&v.name, v.class, v.bytes, true, 0);
        let operand = Operand { storage, tensor: v.tensor.clone() };
        let leaf = PlannedLeaf { operand, class: v.class, init: init.clone() };
        self.leaves.insert(v.name.clone(), leaf);
        Ok(storage)
    }

    fn draft(
        &mut self,
        name: &str,
        class: Class,
        bytes: u64,
        persistent: bool,
        at: usize,
    ) -> StorageId {
        self.drafts.push(Draft {
            name: name.to_string(),
            class,
            bytes,
            persistent,
            start: at,
            end: at,
        });
        self.drafts.len() - 1
    }

    fn add_part(
        &mut self,
        p: usize,
        program: &PartProgram,
        accumulators: &mut BTreeMap<String, StorageId>,
    ) {
        let upload = self.moments;
        let mut storage: Vec<Option<StorageId>> = vec![None; program.values.len()];
        let mut inputs = Vec::new();
        let mut last_use = vec![0; program.values.len()];
        for (n, node) in program.nodes.iter().enumerate() {
            node.inputs.iter().chain(&node.outputs).for_each(|u| last_use[u.value] = n);
        }
        let mut used = vec![false; program.values.len()];
        program.nodes.iter().flat_map(|n| &n.inputs).for_each(|u| used[u.value] = true);
        for (v, value) in program.values.iter().enumerate() {
            storage[v] = match &value.leaf {
                None => None,
                Some(Leaf::Parameter(_) | Leaf::State(..)) => {
                    Some(self.leaves[&value.name].operand.storage)
                }
                Some(Leaf::Accumulator) => Some(match accumulators.get(&value.name) {
                    Some(id) => *id,
                    None => {
                        let id = self.draft(&value.name, value.class, value.bytes, false, upload);
                        accumulators.insert(value.name.clone(), id);
                        id
                    }
                }),
                Some(Leaf::Input) if used[v] => {
                    let id = self.draft(&value.name, value.class, value.bytes, false, upload);
                    let operand = Operand { storage: id, tensor: value.tensor.clone() };
                    inputs.push((value.name.clone(), operand));
                    Some(id)
                }
                Some(Leaf::Input) => None,
            };
        }
        self.at.push((p, None));
        let mut nodes = Vec::new();
        for (n, node) in program.nodes.iter().enumerate() {
            let now = upload + 1 + n;
            self.at.push((p, Some(n)));
            for (j, u) in node.outputs.iter().enumerate() {
                let value = &program.values[u.value];
                storage[u.value] = Some(match value.assigned {
                    Some(leaf) => storage[leaf].expect("leaves have storage"),
                    None => match self.in_place(program, node, n, j, &storage, &last_use) {
                        Some(id) => id,
                        None => self.draft(&value.name, value.class, value.bytes, false, now),
                    },
                });
            }
            let bytes = node.op.workspace_bytes(&node.input_types(), &self.capabilities);
            let workspace = (bytes > 0).then(|| {
                let name = format!("{}.workspace", node.label);
                self.draft(&name, Class::Workspace, bytes.next_multiple_of(4), false, now)
            });
            let resolve = |u: &Use| Operand {
                storage: storage[u.value].expect("made before it is used"),
                tensor: u.tensor.clone(),
            };
            let inputs: Vec<Operand> = node.inputs.iter().map(resolve).collect();
            let outputs: Vec<Operand> = node.outputs.iter().map(resolve).collect();
            for o in inputs.iter().chain(&outputs) {
                self.drafts[o.storage].end = self.drafts[o.storage].end.max(now);
            }
            let value_name = |u: &Use| match program.values[u.value].leaf {
                Some(Leaf::Input) | None => u.value as u32,
                Some(_) => u32::MAX - storage[u.value].expect("has storage") as u32,
            };
            nodes.push(PlannedNode {
                op: node.op.clone(),
                label: node.label.clone(),
                input_values: node.inputs.iter().map(value_name).collect(),
                output_values: node.outputs.iter().map(value_name).collect(),
                inputs,
                outputs,
                workspace,
                frees: Vec::new(),
                again: node.again,
            });
        }
        self.moments = upload + 1 + program.nodes.len();
        // A storage is free after the last node that touches it.
        let mut last: BTreeMap<StorageId, usize> = BTreeMap::new();
        for (n, node) in nodes.iter().enumerate() {
            let touched = node.inputs.iter().chain(&node.outputs).map(|o| o.storage);
            touched.chain(node.workspace).for_each(|s| {
                last.insert(s, n);
            });
        }
        let kept: BTreeSet<StorageId> = accumulators.values().copied().collect();
        for (s, n) in last {
            if !self.drafts[s].persistent && !kept.contains(&s) {
                nodes[n].frees.push(s);
            }
        }
        self.parts.push(Part { kind: program.kind, nodes, inputs });
    }

    /// An input of `node` that dies here and whose memory output `j` may take.
    fn in_place(
        &self,
        program: &PartProgram,
        node: &ProgramNode,
        n: usize,
        j: usize,
        storage: &[Option<StorageId>],
        last_use: &[usize],
    ) -> Option<StorageId> {
        let taken = |id: StorageId| node.outputs[..j].iter().any(|o| storage[o.value] == Some(id));
        node.inputs.iter().enumerate().find_map(|(k, u)| {
            let id = storage[u.value]?;
            let dies = last_use[u.value] == n;
            (dies && !taken(id) && node.may_take(program, k, j)).then_some(id)
        })
    }

    /// Bytes live at each moment, every storage rounded up to `alignment`.
    pub fn live_bytes(&self, alignment: u64) -> Vec<u64> {
        let mut change = vec![0i64; self.moments + 1];
        for d in &self.drafts {
            let bytes = d.bytes.next_multiple_of(alignment) as i64;
            change[d.start] += bytes;
            change[d.end + 1] -= bytes;
        }
        let mut live = 0;
        change[..self.moments]
            .iter()
            .map(|c| {
                live += c;
                live as u64
            })
            .collect()
    }
}
