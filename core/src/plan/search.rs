//! The search over levers for the fastest plan that fits.
//!
//! One lever exists so far: the number of micro-batches. More micro-batches
//! never make a step faster (each adds launches and reads the weights again),
//! so the smallest count that fits is the fastest plan; and what fits a small
//! budget fits a larger one, so the count never falls as the budget shrinks.
//! Recomputation, precision and offload will be levers of the same loop.

use std::collections::BTreeMap;

use super::liveness::{Draft, Layout};
use super::offsets::{self, Interval};
use super::{MicroBatch, PartKind, Plan, Storage, cost, lower, verify};
use crate::device::DeviceDescription;
use crate::error::{Error, OverBudget, Result};
use crate::graph::Model;
use crate::launch::PARAMETER_BYTES;
use crate::ledger::{Class, Request};
use crate::optimizers::Recipe;
use crate::program;

/// What is to be planned.
pub struct PlanRequest<'a> {
    /// The model.
    pub model: &'a dyn Model,
    /// What a step does with the gradients.
    pub recipe: &'a Recipe,
    /// Items of a training step.
    pub batch: usize,
    /// Items of the evaluation set, if there is to be an evaluation.
    pub evaluate_items: Option<usize>,
    /// Items of a prediction, if there is to be one. What the model says about
    /// them is kept beside the weights.
    pub predict_items: Option<usize>,
    /// The line.
    pub budget_bytes: u64,
    /// A fixed number of micro-batches: forbids the planner to choose.
    pub micro_batches: Option<usize>,
    /// Whether a model that takes statistics of the batch (batch norm) may be
    /// split all the same: each micro-batch is then normalised by its own, and
    /// the result differs from that of the whole batch.
    pub split_batch_statistics: bool,
}

impl<'a> PlanRequest<'a> {
    /// A training step without evaluation, the planner free to choose.
    pub fn new(
        model: &'a dyn Model,
        recipe: &'a Recipe,
        batch: usize,
        budget_bytes: u64,
    ) -> PlanRequest<'a> {
        PlanRequest {
            model,
            recipe,
            batch,
            evaluate_items: None,
            predict_items: None,
            budget_bytes,
            micro_batches: None,
            split_batch_statistics: false,
        }
    }
}

/// The fastest plan within the budget.
///
/// # Errors
/// [`Error::OverBudget`] with the smallest budget that would do, besides
/// whatever tracing the model gives.
pub fn plan(request: &PlanRequest<'_>, device: &DeviceDescription) -> Result<Plan> {
    let batch = request.batch;
    if batch == 0 {
        return Err(Error::Setting { name: "batch", message: "must be at least 1".into() });
    }
    if let Some(k) = request.micro_batches.filter(|k| *k == 0 || *k > batch) {
        let message = format!("{k} is outside 1..={batch}, the batch size");
        return Err(Error::Setting { name: "micro-batches", message });
    }
    if request.evaluate_items == Some(0) {
        let message = "the evaluation set is empty".into();
        return Err(Error::Setting { name: "evaluation items", message });
    }
    if request.predict_items == Some(0) {
        let message = "must be at least 1".into();
        return Err(Error::Setting { name: "prediction items", message });
    }
    let whole =
        !request.split_batch_statistics && program::takes_batch_statistics(request.model, batch)?;
    if let Some(k) = request.micro_batches.filter(|k| whole && *k > 1) {
        let message = format!(
            "{k} would change the batch statistics that {} takes; allow that, or leave the batch whole",
            request.model.name()
        );
        return Err(Error::Setting { name: "micro-batches", message });
    }
    let mut search = Search { request, device, smallest: None, overrun: None };
    let counts = if whole { vec![1] } else { candidates(request) };
    if let Some(plan) = search.first_fit(&counts)? {
        verify::verify(&plan, request.budget_bytes)?;
        return Ok(plan);
    }
    let Some(smallest) = search.smallest else {
        // Not even single items make tensors that a page can hold.
        return Err(search.overrun.unwrap_or_else(|| Error::Plan("nothing to try".into())));
    };
    Err(Error::OverBudget(Box::new(OverBudget {
        budget_bytes: request.budget_bytes,
        minimum_bytes: smallest.peak_bytes,
        at: smallest.peak_at,
        tensors: smallest.peak_tensors.into_iter().take(3).collect(),
        forbidden: match (request.micro_batches, whole) {
            (_, true) => vec!["micro-batch (it would change the batch statistics)".into()],
            (Some(_), false) => vec!["micro-batch".into()],
            (None, false) => Vec::new(),
        },
    })))
}

struct Search<'a> {
    request: &'a PlanRequest<'a>,
    device: &'a DeviceDescription,
    /// The smallest plan seen that did not fit.
    smallest: Option<Plan>,
    /// The last tensor seen that no page can hold.
    overrun: Option<Error>,
}

impl Search<'_> {
    /// The plan with `k` micro-batches if it fits.
    fn fit(&mut self, k: usize) -> Result<Option<Plan>> {
        let plan = match build(self.request, k, self.device) {
            Ok(plan) => plan,
            Err(e @ Error::PageOverrun { .. }) => {
                self.overrun = Some(e);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        if plan.peak_bytes <= self.request.budget_bytes {
            return Ok(Some(plan));
        }
        if self.smallest.as_ref().is_none_or(|s| plan.peak_bytes < s.peak_bytes) {
            self.smallest = Some(plan);
        }
        Ok(None)
    }

    /// The first candidate that fits. All are tried in turn: peaks do not quite
    /// fall with the size of the micro-batch (uneven splits and remainders add
    /// parts), and only so does a tighter budget never get a higher peak.
    fn first_fit(&mut self, candidates: &[usize]) -> Result<Option<Plan>> {
        for k in candidates {
            if let Some(plan) = self.fit(*k)? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }
}

/// Counts of micro-batches worth trying, fewest first: for each size of the
/// largest micro-batch, the smallest count that gives it.
fn candidates(request: &PlanRequest<'_>) -> Vec<usize> {
    if let Some(k) = request.micro_batches {
        return vec![k];
    }
    let mut out: Vec<usize> = Vec::new();
    let mut k = 1;
    while k <= request.batch {
        out.push(k);
        let items = request.batch.div_ceil(k);
        // The next count whose largest micro-batch is smaller.
        k = if items == 1 { request.batch + 1 } else { request.batch.div_ceil(items - 1) };
    }
    out
}

/// Sizes of `k` micro-batches of a batch, as even as possible, large ones first.
pub fn micro_batch_sizes(batch: usize, k: usize) -> Vec<usize> {
    (0..k).map(|i| batch / k + usize::from(i < batch % k)).collect()
}

/// Plans with `k` micro-batches, whatever the budget.
fn build(request: &PlanRequest<'_>, k: usize, device: &DeviceDescription) -> Result<Plan> {
    let sizes = micro_batch_sizes(request.batch, k);
    let mut distinct = sizes.clone();
    distinct.dedup();
    let mut evaluate = Vec::new();
    if let Some(items) = request.evaluate_items {
        let full = distinct[0].min(items);
        evaluate.push(full);
        if items % full != 0 {
            evaluate.push(items % full);
        }
    }
    let PlanRequest { model, recipe, batch, predict_items, .. } = *request;
    let programs = program::build(model, recipe, batch, &distinct, &evaluate, predict_items)?;
    let layout = Layout::new(&programs, &device.capabilities)?;
    let mut plan = place(layout, device)?;
    plan.batch = request.batch;
    plan.recipe = format!("{:?}", request.recipe);
    let mut first_item = 0;
    for items in sizes {
        let part = plan.part(PartKind::Micro { items }).expect("one part a size");
        plan.micro_batches.push(MicroBatch { part, first_item, items });
        first_item += items;
    }
    plan.step_seconds = cost::step_seconds(&plan);
    Ok(plan)
}

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
        |p: &super::Part| p.inputs.iter().map(|(_, o)| plan.storages[o.storage].bytes).sum::<u64>();
    let largest = plan.parts.iter().map(upload).max().unwrap_or(0);
    for slot in 0..device.staging_slots {
        add(format!("staging slot {slot}"), largest.max(device.staging_minimum_bytes));
    }
    add("readback".into(), device.readback_bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_even() {
        assert_eq!(micro_batch_sizes(10, 3), vec![4, 3, 3]);
        assert_eq!(micro_batch_sizes(10, 7), vec![2, 2, 2, 1, 1, 1, 1]);
    }
}
