//! Predicted time of ops: launch + max(arithmetic, traffic).

use crate::device::DeviceDescription;
use crate::ops::{Op, TensorType};
use crate::program::{PartProgram, ProgramNode};

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
pub fn part_seconds(part: &PartProgram, device: &DeviceDescription) -> f64 {
    let seconds =
        |n: &ProgramNode| node_seconds(&n.op, &n.input_types(), &n.output_types(), device);
    part.nodes.iter().map(seconds).sum()
}
