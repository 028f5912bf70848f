//! What a backend is: a [`Device`] that loads plans, and the [`Executor`] that
//! runs a loaded plan. A new backend implements these two traits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::launch::{Capabilities, StorageId};
use crate::ledger::Ledger;
use crate::plan::Plan;

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

/// A device that can run plans.
pub trait Device: Send + Sync {
    /// What it is.
    fn description(&self) -> &DeviceDescription;

    /// Makes exactly the plan's [`requests`](Plan::requests) of the device,
    /// each through the ledger first, and compiles the plan's kernels. The
    /// arena starts as zeros.
    ///
    /// # Errors
    /// Memory refused, kernels that do not compile, a lost device. Nothing
    /// stays allocated then.
    fn load(&self, plan: &Arc<Plan>, ledger: &Ledger) -> Result<Box<dyn Executor>>;
}

/// How long one launch or op took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpTime {
    /// Which part ran.
    pub part: usize,
    /// Which node of the part.
    pub node: usize,
    /// How long it took.
    pub seconds: f64,
}

/// A loaded plan. Calls are in order; only [`read`](Executor::read) and
/// [`synchronize`](Executor::synchronize) wait for the device.
pub trait Executor: Send {
    /// Writes bytes to a storage, from byte `offset_bytes` (a multiple of 4) on.
    /// The length is a multiple of 4.
    fn write(&mut self, storage: StorageId, offset_bytes: u64, data: &[u8]) -> Result<()>;

    /// Uploads the data of `uploads` (lengths at most the storages' sizes; a
    /// length that is no multiple of 4 is filled up with zeros), then runs a
    /// part's nodes in order.
    fn run(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<()>;

    /// Reads bytes of a storage from `offset_bytes` (a multiple of 4) on, once
    /// all earlier work is done.
    fn read(&mut self, storage: StorageId, offset_bytes: u64, out: &mut [u8]) -> Result<()>;

    /// Waits until all earlier work is done, and reports what failed in it.
    fn synchronize(&mut self) -> Result<()>;

    /// Runs a part with a clock around every node and reports the times.
    /// Where the device has no timestamps, the host's clock and a wait for
    /// each node serve.
    fn profile(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<Vec<OpTime>>;

    /// Facts about the loaded plan worth recording: tuner choices and the like.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
