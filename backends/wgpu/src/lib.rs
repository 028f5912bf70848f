//! The wgpu backend: runs plans as WGSL shaders on Vulkan, Metal and
//! Direct3D 12.
//!
//! Every buffer is requested through the ledger first. Data goes up through a
//! ring of staging slots and comes back through one readback buffer, all part
//! of the plan; wgpu's own staging (`Queue::write_buffer`) is never used,
//! since nobody counts it.

mod buffers;
mod device;
mod devices;
mod executor;
mod pipelines;
pub mod source;
pub mod tuner;

use std::sync::Arc;

use plimsoll_core::backend::Device;
use plimsoll_core::device::DeviceDescription;
use plimsoll_core::{Error, Result};

/// The devices of this machine that wgpu drives. Empty where there is none.
pub fn list() -> Vec<DeviceDescription> {
    devices::adapters().iter().enumerate().map(|(i, a)| devices::describe(i, a)).collect()
}

/// Opens device number `index` of [`list`].
///
/// # Errors
/// [`Error::Device`] where there is no such device or its driver refuses.
pub fn open(index: usize) -> Result<Arc<dyn Device>> {
    let adapters = devices::adapters();
    let adapter = adapters.get(index).ok_or_else(|| {
        Error::device(format!("wgpu:{index}"), format!("there are {} wgpu devices", adapters.len()))
    })?;
    Ok(Arc::new(device::WgpuDevice::open(index, adapter)?))
}
