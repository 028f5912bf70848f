//! The devices of every compiled backend, and choosing among them.

use std::sync::Arc;

use crate::{Device, DeviceDescription, DeviceKind, Error, Result};

/// All devices, those of the cpu backend first.
///
/// # Errors
/// Where a backend that is compiled in cannot list its devices.
pub fn list() -> Result<Vec<DeviceDescription>> {
    #[cfg(feature = "cpu")]
    let cpu = plimsoll_cpu::list();
    #[cfg(not(feature = "cpu"))]
    let cpu = Vec::new();
    #[cfg(feature = "wgpu")]
    let wgpu = plimsoll_wgpu::list();
    #[cfg(not(feature = "wgpu"))]
    let wgpu = Vec::new();
    Ok([cpu, wgpu].concat())
}

/// Opens a device: an id (`cpu`, `wgpu`, `wgpu:1`), or a part of a name in any
/// case. `wgpu` is the first of that backend.
///
/// # Errors
/// [`Error::Device`] that lists what there is.
pub fn open(wanted: &str) -> Result<Arc<dyn Device>> {
    let all = list()?;
    let lower = wanted.to_lowercase();
    let exact = all.iter().find(|d| d.id == lower);
    let backend = || all.iter().find(|d| d.backend == lower);
    let named = || all.iter().find(|d| !lower.is_empty() && d.name.to_lowercase().contains(&lower));
    match exact.or_else(backend).or_else(named) {
        Some(found) => open_described(found),
        None => {
            let names: Vec<String> = all.iter().map(|d| format!("{} ({})", d.id, d.name)).collect();
            let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            Err(Error::device(wanted, format!("there is no such device; there is: {there}")))
        }
    }
}

/// Opens the default device: the fastest real GPU, else the CPU, else
/// whatever there is.
///
/// # Errors
/// [`Error::Device`] where there is no device at all.
pub fn open_default() -> Result<Arc<dyn Device>> {
    let all = list()?;
    let rank = |d: &DeviceDescription| match d.kind {
        DeviceKind::DiscreteGpu => 0,
        DeviceKind::IntegratedGpu => 1,
        DeviceKind::VirtualGpu => 2,
        DeviceKind::Cpu => 3,
        DeviceKind::Unknown => 4,
        DeviceKind::SoftwareGpu => 5,
    };
    let best = all.iter().min_by_key(|d| rank(d));
    open_described(best.ok_or_else(|| {
        Error::device("default", "there is no device; build with the feature `cpu` or `wgpu`")
    })?)
}

fn open_described(device: &DeviceDescription) -> Result<Arc<dyn Device>> {
    match device.backend.as_str() {
        #[cfg(feature = "cpu")]
        "cpu" => Ok(Arc::new(plimsoll_cpu::CpuDevice::new()?)),
        #[cfg(feature = "wgpu")]
        "wgpu" => {
            let index = device.id.rsplit(':').next().and_then(|i| i.parse().ok()).unwrap_or(0);
            plimsoll_wgpu::open(index)
        }
        other => Err(Error::device(&device.id, format!("the backend {other} is not compiled in"))),
    }
}
