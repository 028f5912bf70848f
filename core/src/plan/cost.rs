//! Predicted time of ops: launch + max(arithmetic, traffic).

use super::{Part, Plan, PlannedNode, types};
use crate::device::DeviceDescription;
use crate::ops::{Op, TensorType};

/// Predicted seconds of one op.
pub fn node_seconds(
    op: &Op,
    inputs: &[TensorType],
    outputs: &[TensorType],
    device: &DeviceDescription,
) -> f64 {
    let cost = op.cost(inputs, outputs);
    let arithmetic = cost.flops as f64 / device.flops_per_second;
    let traffic = cost.bytes as f64 / device.bytes_per_second;
    device.launch_seconds + arithmetic.max(traffic)
}

/// Predicted seconds of one run of a part.
pub fn part_seconds(part: &Part, device: &DeviceDescription) -> f64 {
    let seconds = |n: &PlannedNode| node_seconds(&n.op, &types(&n.inputs), &types(&n.outputs), device);
    part.nodes.iter().map(seconds).sum()
}

/// Predicted seconds of a training step.
pub fn step_seconds(plan: &Plan) -> f64 {
    let once = [super::PartKind::Begin, super::PartKind::Update];
    let once = plan.parts.iter().filter(|p| once.contains(&p.kind));
    let micro = plan.micro_batches.iter().map(|m| &plan.parts[m.part]);
    once.chain(micro).map(|p| part_seconds(p, &plan.device)).sum()
}
