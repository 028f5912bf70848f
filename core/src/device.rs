//! What planner and user know of a device.

use serde::{Deserialize, Serialize};

use crate::launch::Capabilities;

/// What kind of processor computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The host's own cores, through the cpu backend.
    Cpu,
    /// A GPU with its own memory.
    DiscreteGpu,
    /// A GPU that shares the host's memory.
    IntegratedGpu,
    /// A GPU of a virtual machine.
    VirtualGpu,
    /// A GPU driver that computes on the host's cores.
    SoftwareGpu,
    /// A GPU that does not say what it is.
    Unknown,
}

/// A device as the planner and the user see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// How `--device` names it: `cpu`, `wgpu:0`, …
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// `cpu`, `wgpu` or `cuda`.
    pub backend: String,
    /// What kind of processor it is.
    pub kind: DeviceKind,
    /// Driver and version, where known.
    pub driver: String,
    /// Memory that it has, where it tells.
    pub memory_total_bytes: Option<u64>,
    /// Memory free now, where it tells.
    pub memory_free_bytes: Option<u64>,
    /// Features that kernels may use.
    pub features: Vec<String>,
    /// Limits that lowering respects.
    pub capabilities: Capabilities,
    /// Largest page, a multiple of `alignment_bytes`.
    pub page_bytes: u64,
    /// Alignment of tensors in a page.
    pub alignment_bytes: u64,
    /// How many copies of the largest upload the backend stages (0: writes
    /// go to the arena directly).
    pub staging_slots: u64,
    /// Smallest size of a staging slot, so that weights go up in few pieces.
    pub staging_minimum_bytes: u64,
    /// Size of the buffer through which results come back (0: none).
    pub readback_bytes: u64,
    /// Bytes of parameter block that one launch takes (0: none).
    pub parameter_block_bytes: u64,
    /// Arithmetic rate for the cost model.
    pub flops_per_second: f64,
    /// Memory bandwidth for the cost model.
    pub bytes_per_second: f64,
    /// Time that one launch costs.
    pub launch_seconds: f64,
}
