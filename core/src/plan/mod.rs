//! Plans: a step program with a place in the arena for every tensor.
//!
//! Planning is a pure function of the model, the device's description and the
//! budget. The same input gives the same plan.

pub mod candidate;
pub mod cost;
pub mod liveness;
pub mod offsets;
pub mod place;
pub mod remat;
pub mod search;
pub mod verify;

use std::collections::BTreeMap;

pub use crate::program::PartKind;
use serde::{Deserialize, Serialize};

use crate::device::DeviceDescription;
use crate::graph::Init;
use crate::launch::{Launch, StorageId};
use crate::ledger::{Class, Request};
use crate::ops::{LowerContext, Op, Operand, TensorType, matmul};

/// Memory in the arena. Tensors that are computed in place share one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// The name of the tensor that it holds (the first, if several).
    pub name: String,
    /// What it is for.
    pub class: Class,
    /// Its size, a multiple of 4.
    pub bytes: u64,
    /// Whether it keeps its content between steps.
    pub persistent: bool,
    /// Which page it lies in.
    pub page: usize,
    /// Where in the page, a multiple of the device's alignment.
    pub offset_bytes: u64,
}

/// An op with its tensors' places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// What is computed.
    pub op: Op,
    /// Scope and op, for people: `fc1.matmul`.
    pub label: String,
    /// What is read.
    pub inputs: Vec<Operand>,
    /// What is written.
    pub outputs: Vec<Operand>,
    /// The value behind each input, unique within the part; a leaf's is its
    /// storage's number counted from the top. For the checker.
    pub input_values: Vec<u32>,
    /// The value behind each output.
    pub output_values: Vec<u32>,
    /// Scratch memory.
    pub workspace: Option<StorageId>,
    /// Storages that nobody reads after this node (in this part).
    pub frees: Vec<StorageId>,
    /// Whether it computes again what was dropped to save memory.
    pub again: bool,
}

/// A list of ops that runs as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// When it runs.
    pub kind: PartKind,
    /// Its ops in order.
    pub nodes: Vec<PlannedNode>,
    /// What is uploaded before it runs: input names and places.
    pub inputs: Vec<(String, Operand)>,
}

/// A plan that fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// All memory places.
    pub storages: Vec<Storage>,
    /// Sizes of the pages.
    pub pages: Vec<u64>,
    /// What is executed.
    pub parts: Vec<Part>,
    /// The recipe with its settings; empty if the plan has none.
    pub recipe: String,
    /// Items of a training step.
    pub batch: usize,
    /// Micro-batches: items and the part that runs them, in order.
    pub micro_batches: Vec<MicroBatch>,
    /// Every request that loading makes, in order.
    pub requests: Vec<Request>,
    /// Sum of the requests: the planned peak.
    pub peak_bytes: u64,
    /// Bytes of the arena, the sum of the pages.
    pub arena_bytes: u64,
    /// Most bytes live at once: no arena can be smaller.
    pub live_bound_bytes: u64,
    /// Bytes by class at the moment of the arena's peak, with all that is
    /// outside the arena.
    pub classes: BTreeMap<Class, u64>,
    /// The op at which the arena reaches its peak.
    pub peak_at: String,
    /// The largest tensors live at the peak.
    pub peak_tensors: Vec<(String, u64)>,
    /// Predicted time of a training step.
    pub step_seconds: f64,
    /// Persistent leaves by name, with how they start.
    pub leaves: BTreeMap<String, PlannedLeaf>,
    /// The device that it is for.
    pub device: DeviceDescription,
}

/// A leaf that keeps its content between steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedLeaf {
    /// Its place and type.
    pub operand: Operand,
    /// What it is for.
    pub class: Class,
    /// Its content at the start.
    pub init: Init,
}

/// A slice of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicroBatch {
    /// The part that runs it.
    pub part: usize,
    /// Its first item in the batch.
    pub first_item: usize,
    /// Its items.
    pub items: usize,
}

impl Plan {
    /// Lowers a node for the plan's device. `variant` is the tuner's choice if
    /// the node is a product.
    pub fn lower(&self, node: &PlannedNode, variant: Option<matmul::Variant>) -> Vec<Launch> {
        lower(&self.device, node, variant)
    }

    /// The part of a kind.
    pub fn part(&self, kind: PartKind) -> Option<usize> {
        self.parts.iter().position(|p| p.kind == kind)
    }
}

/// Lowers a node for a device.
pub fn lower(
    device: &DeviceDescription,
    node: &PlannedNode,
    variant: Option<matmul::Variant>,
) -> Vec<Launch> {
    node.op.lower(&LowerContext {
        capabilities: &device.capabilities,
        inputs: &node.inputs,
        outputs: &node.outputs,
        workspace: node.workspace,
        matmul_variant: variant,
    })
}

/// The types of operands.
pub fn types(operands: &[Operand]) -> Vec<TensorType> {
    operands.iter().map(|o| o.tensor.clone()).collect()
}
