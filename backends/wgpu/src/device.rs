//! An open device, and the errors that come from it at any time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::backend::{Device, Executor};
use plimsoll_core::device::DeviceDescription;
use plimsoll_core::ledger::Ledger;
use plimsoll_core::plan::Plan;
use plimsoll_core::{Error, Result};
use wgpu::{Adapter, DeviceDescriptor, ErrorFilter, MemoryHints, PollType, Queue};

use crate::{devices, executor};

/// An open wgpu device.
pub struct WgpuDevice {
    shared: Arc<Shared>,
}

/// What all that lives on the device shares.
pub struct Shared {
    /// What it is.
    pub description: DeviceDescription,
    /// wgpu's handle.
    pub device: wgpu::Device,
    /// Its only queue.
    pub queue: Queue,
    /// The first error that no scope caught, a lost device among them.
    fault: Arc<Mutex<Option<String>>>,
}

impl WgpuDevice {
    /// Opens an adapter with the limits that it truly has.
    pub fn open(index: usize, adapter: &Adapter) -> Result<WgpuDevice> {
        let description = devices::describe(index, adapter);
        let request = adapter.request_device(&DeviceDescriptor {
            label: Some("plimsoll"),
            required_features: adapter.features() & devices::wanted_features(),
            required_limits: adapter.limits(),
            // Small blocks: what the allocator takes beyond our requests is
            // not in the ledger.
            memory_hints: MemoryHints::MemoryUsage,
            ..DeviceDescriptor::default()
        });
        let (device, queue) = pollster::block_on(request)
            .map_err(|e| Error::device(&description.name, format!("cannot be opened: {e}")))?;
        let fault = Arc::new(Mutex::new(None));
        let record = |fault: &Arc<Mutex<Option<String>>>, message: String| {
            fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
        };
        let uncaptured = Arc::clone(&fault);
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
            record(&uncaptured, e.to_string())
        }));
        let lost = Arc::clone(&fault);
        device.set_device_lost_callback(move |reason, message| {
            // Dropping the device is no loss.
            if reason != wgpu::DeviceLostReason::Destroyed {
                record(&lost, format!("the device was lost: {message}"));
            }
        });
        Ok(WgpuDevice { shared: Arc::new(Shared { description, device, queue, fault }) })
    }
}

impl Device for WgpuDevice {
    fn description(&self) -> &DeviceDescription {
        &self.shared.description
    }

    fn load(&self, plan: &Arc<Plan>, ledger: &Ledger) -> Result<Box<dyn Executor>> {
        let loaded = executor::WgpuExecutor::load(Arc::clone(&self.shared), plan, ledger)?;
        Ok(Box::new(loaded))
    }
}

impl Shared {
    /// A typed error about this device.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::device(&self.description.name, message)
    }

    /// Fails if the device has failed since.
    pub fn check(&self) -> Result<()> {
        match &*self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(self.error(message.clone())),
            None => Ok(()),
        }
    }

    /// Waits until all submitted work is done.
    pub fn wait(&self) -> Result<()> {
        self.poll(PollType::wait_indefinitely())
    }

    /// Polls, and reports what callbacks have recorded.
    pub fn poll(&self, how: PollType) -> Result<()> {
        // wgpu 30 panics in `poll` where the device is lost meanwhile. Its
        // locks are not poisoned by that, and a lost device is not used again.
        let polled = catch_unwind(AssertUnwindSafe(|| self.device.poll(how)));
        self.check()?;
        match polled {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(self.error(format!("waiting for it failed: {e}"))),
            Err(_) => {
                let lost = "the device was lost while it worked".to_string();
                let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                Err(self.error(fault.get_or_insert(lost).clone()))
            }
        }
    }

    /// Runs `f` and gives back what it made, or the first error of any kind
    /// that wgpu reports for it. Scopes belong to the calling thread.
    pub fn scoped<T>(&self, f: impl FnOnce() -> T) -> std::result::Result<T, wgpu::Error> {
        let filters = [ErrorFilter::Validation, ErrorFilter::OutOfMemory, ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = f();
        let mut first = None;
        for scope in scopes.into_iter().rev() {
            first = pollster::block_on(scope.pop()).or(first);
        }
        first.map_or(Ok(made), Err)
    }
}
