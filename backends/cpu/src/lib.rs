//! The CPU backend: runs the same programs in the same arena, at the same
//! offsets, as the GPU backends. It is the default where there is no real GPU
//! and the oracle of the conformance tests.
//!
//! Results do not depend on the number of threads: work is cut into pieces by
//! shape alone, and what is summed across pieces is summed in a fixed order.

mod arena;
mod block;
mod executor;
mod math;
mod ops;

use std::sync::Arc;

use plimsoll_core::backend::{Device, DeviceDescription, DeviceKind, Executor};
use plimsoll_core::launch::Capabilities;
use plimsoll_core::ledger::Ledger;
use plimsoll_core::plan::Plan;
use plimsoll_core::{Error, Result};

/// The one device of this backend: the host with all its cores.
pub fn list() -> Vec<DeviceDescription> {
    vec![describe(all_cores())]
}

fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The host's cores and memory as a device.
pub struct CpuDevice {
    description: DeviceDescription,
    pool: Arc<rayon::ThreadPool>,
    poison: bool,
}

impl CpuDevice {
    /// All cores.
    ///
    /// # Errors
    /// [`Error::Device`] where threads cannot be started.
    pub fn new() -> Result<CpuDevice> {
        CpuDevice::with_threads(all_cores())
    }

    /// This many threads (at least one).
    ///
    /// # Errors
    /// [`Error::Device`] where threads cannot be started.
    pub fn with_threads(threads: usize) -> Result<CpuDevice> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|e| Error::device("cpu", e.to_string()))?;
        let description = describe(threads.max(1));
        Ok(CpuDevice { description, pool: Arc::new(pool), poison: false })
    }

    /// The same device in poison mode: memory that the plan has freed becomes
    /// NaN, so that a fault of the planner shows in the results.
    pub fn poisoned(mut self) -> CpuDevice {
        self.poison = true;
        self
    }
}

fn describe(threads: usize) -> DeviceDescription {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let known = |bytes: u64| (bytes > 0).then_some(bytes);
    DeviceDescription {
        id: "cpu".into(),
        name: format!("CPU, {threads} threads"),
        backend: "cpu".into(),
        kind: DeviceKind::Cpu,
        driver: "gemm + rayon".into(),
        memory_total_bytes: known(system.total_memory()),
        memory_free_bytes: known(system.available_memory()),
        features: Vec::new(),
        capabilities: Capabilities { threads: Some(threads as u32), ..Capabilities::PORTABLE },
        // One allocation may take any size.
        page_bytes: 1 << 46,
        alignment_bytes: arena::ALIGNMENT as u64,
        staging_slots: 0,
        staging_minimum_bytes: 0,
        readback_bytes: 0,
        parameter_block_bytes: 0,
        // Rough figures for a core of the 2020s; only ratios matter so far.
        flops_per_second: 5e10 * threads as f64,
        bytes_per_second: 2e10,
        launch_seconds: 3e-6,
    }
}

impl Device for CpuDevice {
    fn description(&self) -> &DeviceDescription {
        &self.description
    }

    fn load(&self, plan: &Arc<Plan>, ledger: &Ledger) -> Result<Box<dyn Executor>> {
        let executor = executor::CpuExecutor::new(
            Arc::clone(plan),
            ledger,
            Arc::clone(&self.pool),
            self.poison,
        )?;
        Ok(Box::new(executor))
    }
}
