//! The null backend: makes a plan's requests and computes nothing. It checks
//! plans and byte counts, and stands in for devices in tests.

use std::sync::Arc;

use crate::backend::{Device, DeviceDescription, DeviceKind, Executor, OpTime};
use crate::error::Result;
use crate::launch::{Capabilities, StorageId};
use crate::ledger::{Grant, Ledger};
use crate::plan::Plan;

/// A device that only counts.
#[derive(Clone, Debug)]
pub struct NullDevice {
    description: DeviceDescription,
}

impl NullDevice {
    /// A null device with the portable floor's limits and pages of this size.
    pub fn new(page_bytes: u64) -> NullDevice {
        NullDevice {
            description: DeviceDescription {
                id: "null".into(),
                name: "null".into(),
                backend: "null".into(),
                kind: DeviceKind::Unknown,
                driver: String::new(),
                memory_total_bytes: None,
                memory_free_bytes: None,
                features: Vec::new(),
                capabilities: Capabilities::PORTABLE,
                page_bytes,
                alignment_bytes: 256,
                staging_slots: 2,
                staging_minimum_bytes: 0,
                readback_bytes: 256,
                parameter_block_bytes: 256,
                flops_per_second: 1e13,
                bytes_per_second: 3e11,
                launch_seconds: 5e-6,
            },
        }
    }
}

impl Device for NullDevice {
    fn description(&self) -> &DeviceDescription {
        &self.description
    }

    fn load(&self, plan: &Arc<Plan>, ledger: &Ledger) -> Result<Box<dyn Executor>> {
        let request = |r| ledger.request(&self.description.name, r);
        let grants = plan.requests.iter().map(request).collect::<Result<_>>()?;
        Ok(Box::new(NullExecutor { _grants: grants }))
    }
}

struct NullExecutor {
    _grants: Vec<Grant>,
}

impl Executor for NullExecutor {
    fn write(&mut self, _: StorageId, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn run(&mut self, _: usize, _: &[(StorageId, &[u8])]) -> Result<()> {
        Ok(())
    }
    fn read(&mut self, _: StorageId, _: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        Ok(())
    }
    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
    fn profile(&mut self, _: usize, _: &[(StorageId, &[u8])]) -> Result<Vec<OpTime>> {
        Ok(Vec::new())
    }
}
