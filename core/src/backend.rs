//! What a backend is: a [`Device`] that loads plans, and the [`Executor`] that
//! runs a loaded plan. A new backend implements these two traits.

use std::sync::Arc;

use serde::Serialize;

pub use crate::device::{DeviceDescription, DeviceKind};
use crate::error::Result;
use crate::launch::StorageId;
use crate::ledger::Ledger;
use crate::plan::Plan;

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
