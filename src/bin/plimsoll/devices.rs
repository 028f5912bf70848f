//! `plimsoll devices`: what there is to compute on.

use clap::Args;
use plimsoll::{DeviceDescription, DeviceKind};

use crate::failure::Failure;
use crate::output;

/// List every device: name, kind, driver, memory, features and limits
#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object a device
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let devices = plimsoll::devices::list()?;
    if devices.is_empty() {
        output::note("there is no device; build with the feature `cpu` or `wgpu`");
    }
    for device in &devices {
        if arguments.json {
            output::json(device)?;
        } else {
            output::line(describe(device))?;
        }
    }
    Ok(())
}

fn describe(device: &DeviceDescription) -> String {
    let known = |bytes: Option<u64>| bytes.map_or("unknown".to_string(), output::size);
    let limits = &device.capabilities;
    let subgroups = match limits.subgroup_sizes {
        Some((least, most)) if least == most => format!(", subgroups of {least}"),
        Some((least, most)) => format!(", subgroups of {least} to {most}"),
        None => String::new(),
    };
    let features = match device.features.is_empty() {
        true => "none".to_string(),
        false => device.features.join(", "),
    };
    format!(
        "{id}  {name}\n  kind      {kind}\n  driver    {driver}\n  memory    {total}, free {free}\n  \
         features  {features}\n  limits    pages of {page}, alignment {alignment}, {bindings} \
         bindings, workgroups of {invocations} with {workgroup}{subgroups}",
        id = device.id,
        name = device.name,
        kind = kind(device.kind),
        driver = device.driver,
        total = known(device.memory_total_bytes),
        free = known(device.memory_free_bytes),
        page = output::size(device.page_bytes),
        alignment = device.alignment_bytes,
        bindings = limits.max_bindings,
        invocations = limits.max_invocations,
        workgroup = output::size(u64::from(limits.workgroup_bytes)),
    )
}

fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "CPU",
        DeviceKind::DiscreteGpu => "GPU with its own memory",
        DeviceKind::IntegratedGpu => "GPU that shares the host's memory",
        DeviceKind::VirtualGpu => "GPU of a virtual machine",
        DeviceKind::SoftwareGpu => "GPU driver that computes on the CPU",
        DeviceKind::Unknown => "unknown",
    }
}
