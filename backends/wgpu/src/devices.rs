//! Finding and describing adapters.

use std::sync::OnceLock;

use plimsoll_core::device::{DeviceDescription, DeviceKind};
use plimsoll_core::launch::{Capabilities, PARAMETER_BYTES};
use wgpu::{Adapter, Backends, DeviceType, Features, Instance, InstanceDescriptor, InstanceFlags};

/// Tensors start at multiples of this, which every device accepts.
const ALIGNMENT_BYTES: u64 = 256;
/// Bytes of a readback buffer, and the least of a staging slot: large enough
/// that weights travel in few pieces, small beside any budget.
const TRANSFER_BYTES: u64 = 64 << 10;
/// What a binding may span at the most where shaders index by i32.
const LARGEST_PAGE_BYTES: u64 = 2 << 30;

/// Features that the backend uses where a device has them.
pub fn wanted_features() -> Features {
    Features::SUBGROUP
}

/// The adapters of this machine in a stable order, each GPU once. Empty where
/// there is no driver.
pub fn adapters() -> Vec<Adapter> {
    static INSTANCE: OnceLock<Instance> = OnceLock::new();
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    let instance = INSTANCE.get_or_init(|| {
        Instance::new(InstanceDescriptor {
            backends,
            flags: InstanceFlags::empty(),
            ..InstanceDescriptor::new_without_display_handle()
        })
    });
    let mut out: Vec<Adapter> = Vec::new();
    for adapter in pollster::block_on(instance.enumerate_adapters(backends)) {
        let info = adapter.get_info();
        // Vulkan comes first; Direct3D lists the same GPUs again.
        let again = out.iter().any(|other| {
            let other = other.get_info();
            other.backend != info.backend
                && (other.vendor, other.device, &other.name)
                    == (info.vendor, info.device, &info.name)
        });
        if !again && adapter.limits().max_storage_buffers_per_shader_stage >= 8 {
            out.push(adapter);
        }
    }
    out
}

/// The description of adapter number `index`.
pub fn describe(index: usize, adapter: &Adapter) -> DeviceDescription {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        DeviceType::Cpu => DeviceKind::SoftwareGpu,
        DeviceType::Other => DeviceKind::Unknown,
    };
    let names = [
        (Features::SUBGROUP, "subgroup"),
        (Features::SHADER_F16, "shader-f16"),
        (Features::TIMESTAMP_QUERY, "timestamp-query"),
    ];
    let subgroups = features.contains(Features::SUBGROUP) && info.subgroup_min_size > 0;
    let alignment = ALIGNMENT_BYTES.max(u64::from(limits.min_storage_buffer_offset_alignment));
    let page = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
    let (total, free) = match kind {
        DeviceKind::SoftwareGpu | DeviceKind::IntegratedGpu => host_memory(),
        _ => (None, None),
    };
    let (flops_per_second, bytes_per_second, launch_seconds) = rates(kind);
    DeviceDescription {
        id: format!("wgpu:{index}"),
        name: info.name,
        backend: "wgpu".into(),
        kind,
        driver: format!("{} {} ({})", info.driver, info.driver_info, info.backend),
        memory_total_bytes: total,
        memory_free_bytes: free,
        features: names
            .iter()
            .filter(|(f, _)| features.contains(*f))
            .map(|(_, name)| (*name).to_string())
            .collect(),
        capabilities: Capabilities {
            max_groups: limits.max_compute_workgroups_per_dimension.min(65_535),
            max_invocations: limits.max_compute_invocations_per_workgroup,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_bindings: limits.max_storage_buffers_per_shader_stage as usize,
            threads: None,
            subgroup_sizes: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
        },
        page_bytes: page.min(LARGEST_PAGE_BYTES) / alignment * alignment,
        alignment_bytes: alignment,
        staging_slots: 2,
        staging_minimum_bytes: TRANSFER_BYTES,
        readback_bytes: TRANSFER_BYTES,
        parameter_block_bytes: PARAMETER_BYTES
            .next_multiple_of(u64::from(limits.min_uniform_buffer_offset_alignment)),
        flops_per_second,
        bytes_per_second,
        launch_seconds,
    }
}

/// Rough rates of a kind of device; only their ratios matter to the planner.
fn rates(kind: DeviceKind) -> (f64, f64, f64) {
    match kind {
        DeviceKind::DiscreteGpu => (1e13, 4e11, 5e-6),
        DeviceKind::IntegratedGpu => (1.5e12, 6e10, 1e-5),
        DeviceKind::SoftwareGpu | DeviceKind::Cpu => (5e9, 5e9, 2e-5),
        DeviceKind::VirtualGpu | DeviceKind::Unknown => (1e12, 5e10, 1e-5),
    }
}

/// Total and available memory of the host, for devices that compute in it.
fn host_memory() -> (Option<u64>, Option<u64>) {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let known = |bytes: u64| (bytes > 0).then_some(bytes);
    (known(system.total_memory()), known(system.available_memory()))
}
