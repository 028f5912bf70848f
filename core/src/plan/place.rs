//! From a layout to a plan: places in the arena, byte counts, requests.

use std::collections::BTreeMap;

use super::liveness::{Draft, Layout};
use super::offsets::{self, Interval};
use super::{Part, Plan, Storage, lower};
use crate::device::DeviceDescription;
use crate::error::{Error, Result};
use crate::launch::PARAMETER_BYTES;
use crate::ledger::{Class, Request};

/// Gives every storage of a layout its place and derives all byte counts.
pub fn place(layout: Layout, device: &DeviceDescription) -> Result<Plan> {
    let align = device.alignment_bytes;
    let items: Vec<Interval> = layout
        .drafts
        .iter()
        .map(|d| Interval { start: d.start, end: d.end, bytes: d.bytes.next_multiple_of(align) })
        .collect();
    // A weight rather than its gradient, what persists rather than what a
    // smaller batch would make smaller.
    let too_large = |d: &&Draft| d.bytes.next_multiple_of(align) > device.page_bytes;
    let rank = |d: &&Draft| (d.class == Class::Parameter, d.persistent, d.bytes);
    if let Some(d) = layout.drafts.iter().filter(too_large).max_by_key(rank) {
        return Err(Error::PageOverrun {
            tensor: d.name.clone(),
            bytes: d.bytes,
            device: device.name.clone(),
            page_bytes: device.page_bytes,
        });
    }
    let placed = offsets::assign(&items, device.page_bytes);
    let live = layout.live_bytes(align);
    let live_bound_bytes = live.iter().copied().max().unwrap_or(0);
    let peak = live.iter().position(|b| *b == live_bound_bytes).unwrap_or(0);
    let peak_at = match layout.at.get(peak) {
        Some((p, Some(n))) => layout.parts[*p].nodes[*n].label.clone(),
        _ => "the upload of a batch".to_string(),
    };
    let mut classes: BTreeMap<Class, u64> = BTreeMap::new();
    let mut peak_tensors = Vec::new();
    for (d, item) in layout.drafts.iter().zip(&items) {
        if d.start <= peak && peak <= d.end {
            *classes.entry(d.class).or_default() += item.bytes;
            peak_tensors.push((d.name.clone(), item.bytes));
        }
    }
    peak_tensors.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    peak_tensors.truncate(10);
    let storages = layout
        .drafts
        .iter()
        .zip(&placed.offsets)
        .map(|(d, offset)| Storage {
            name: d.name.clone(),
            class: d.class,
            bytes: d.bytes,
            persistent: d.persistent,
            page: (offset / device.page_bytes) as usize,
            offset_bytes: offset % device.page_bytes,
        })
        .collect();
    let arena_bytes = placed.total_bytes();
    let mut plan = Plan {
        storages,
        pages: placed.pages,
        parts: layout.parts,
        recipe: String::new(),
        batch: 0,
        micro_batches: Vec::new(),
        requests: Vec::new(),
        peak_bytes: 0,
        arena_bytes,
        live_bound_bytes,
        classes,
        peak_at,
        peak_tensors,
        step_seconds: 0.0,
        leaves: layout.leaves,
        device: device.clone(),
    };
    plan.requests = requests(&plan);
    plan.peak_bytes = plan.requests.iter().map(|r| r.bytes).sum();
    let mut class = |class, bytes| {
        if bytes > 0 {
            plan.classes.insert(class, bytes);
        }
    };
    class(Class::Gap, arena_bytes - live_bound_bytes);
    let outside = |what: &str| -> u64 {
        plan.requests.iter().filter(|r| r.what.starts_with(what)).map(|r| r.bytes).sum()
    };
    class(Class::ParameterBlock, outside("parameter blocks"));
    class(Class::Staging, outside("staging") + outside("readback"));
    Ok(plan)
}

/// Everything that loading the plan requests, in order: the arena's pages,
/// the parameter blocks of all launches, the staging slots, the readback
/// buffer.
fn requests(plan: &Plan) -> Vec<Request> {
    let device = &plan.device;
    let mut out: Vec<Request> = plan
        .pages
        .iter()
        .enumerate()
        .map(|(i, bytes)| Request { what: format!("arena page {i}"), bytes: *bytes })
        .collect();
    let mut add = |what: String, bytes: u64| {
        if bytes > 0 {
            out.push(Request { what, bytes });
        }
    };
    if device.parameter_block_bytes > 0 {
        debug_assert!(device.parameter_block_bytes >= PARAMETER_BYTES);
        let nodes = plan.parts.iter().flat_map(|p| &p.nodes);
        let launches: usize = nodes.map(|n| lower(device, n, None).len()).sum();
        add("parameter blocks".into(), launches as u64 * device.parameter_block_bytes);
    }
    let upload =
        |p: &Part| p.inputs.iter().map(|(_, o)| plan.storages[o.storage].bytes).sum::<u64>();
    let largest = plan.parts.iter().map(upload).max().unwrap_or(0);
    for slot in 0..device.staging_slots {
        add(format!("staging slot {slot}"), largest.max(device.staging_minimum_bytes));
    }
    add("readback".into(), device.readback_bytes);
    out
}
