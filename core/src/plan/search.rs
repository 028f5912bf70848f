//! The search over levers for the fastest plan that fits.
//!
//! Levers are the number of micro-batches and recomputation. What is tried
//! does not depend on the budget, and of what fits the fastest is taken: so a
//! larger budget never gives a slower plan, nor a tighter one a higher peak.
//! More micro-batches never make a step as traced faster (each adds launches
//! and reads the weights again), so the first count whose plan needs no
//! recomputation ends the search.

use super::candidate::{Candidate, Choice};
use super::{Plan, verify};
use crate::device::DeviceDescription;
use crate::error::{Error, OverBudget, Result};
use crate::graph::Model;
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
    /// What the planner may do to fit.
    pub levers: Levers,
}

/// What the planner may do to make a step fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// Split the batch into micro-batches.
    pub micro_batch: bool,
    /// Drop values and compute them again.
    pub remat: bool,
}

impl Levers {
    /// All of them.
    pub const ALL: Levers = Levers { micro_batch: true, remat: true };
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
            levers: Levers::ALL,
        }
    }

    /// The levers that may not be used, in words. `whole`: the batch may not
    /// be split because the model takes its statistics.
    fn forbidden(&self, whole: bool) -> Vec<String> {
        let mut out = Vec::new();
        if whole {
            out.push("micro-batch (it would change the batch statistics)".to_string());
        } else if self.micro_batches.is_some() || !self.levers.micro_batch {
            out.push("micro-batch".to_string());
        }
        if !self.levers.remat {
            out.push("remat".to_string());
        }
        out
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
    let mut search = Search { request, device, best: None, smallest: None, overrun: None };
    let one = whole || !request.levers.micro_batch && request.micro_batches.is_none();
    let counts = if one { vec![1] } else { candidates(request) };
    search.run(&counts)?;
    if let Some(plan) = search.best {
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
        forbidden: request.forbidden(whole),
    })))
}

struct Search<'a> {
    request: &'a PlanRequest<'a>,
    device: &'a DeviceDescription,
    /// The fastest plan that fits.
    best: Option<Plan>,
    /// The smallest plan seen that did not fit.
    smallest: Option<Plan>,
    /// The last tensor seen that no page can hold.
    overrun: Option<Error>,
}

impl<'a> Search<'a> {
    /// Goes through the counts of micro-batches. Says no more when larger
    /// counts cannot be faster.
    fn run(&mut self, counts: &[usize]) -> Result<()> {
        for k in counts {
            let candidate = Candidate::new(self.request, *k, self.device)?;
            if self.best.as_ref().is_some_and(|b| b.step_seconds <= candidate.seconds) {
                return Ok(());
            }
            let Some(given) = self.keep(candidate.given())? else { continue };
            if self.take(&given) {
                return Ok(());
            }
            if self.request.levers.remat {
                self.reschedule(&candidate, &given)?;
            }
        }
        Ok(())
    }

    /// A plan, unless a tensor of it does not fit into a page.
    fn keep(&mut self, plan: Result<Plan>) -> Result<Option<Plan>> {
        match plan {
            Err(e @ Error::PageOverrun { .. }) => {
                self.overrun = Some(e);
                Ok(None)
            }
            plan => plan.map(Some),
        }
    }

    /// Takes a plan that fits and is faster than the best; remembers the
    /// smallest of the others. Says whether it fits.
    fn take(&mut self, plan: &Plan) -> bool {
        let fits = plan.peak_bytes <= self.request.budget_bytes;
        if fits && self.best.as_ref().is_none_or(|b| plan.step_seconds < b.step_seconds) {
            self.best = Some(plan.clone());
        } else if !fits && self.smallest.as_ref().is_none_or(|s| plan.peak_bytes < s.peak_bytes) {
            self.smallest = Some(plan.clone());
        }
        fits
    }

    /// Tries a candidate's schedules, the fastest first.
    fn reschedule(&mut self, candidate: &Candidate<'a>, given: &Plan) -> Result<()> {
        let frame = candidate.frame(given);
        // No schedule fits, nor is the smallest plan among them.
        let beyond = self.request.budget_bytes < frame.floor_bytes();
        if beyond && (self.best.is_some() || self.smaller(frame.floor_bytes())) {
            return Ok(());
        }
        let schedules = candidate.schedules(given, &frame);
        for choice in &schedules.choices {
            if self.best.as_ref().is_some_and(|b| b.step_seconds <= choice.seconds) {
                return Ok(());
            }
            if choice.bytes <= self.request.budget_bytes
                && self.take(&candidate.chosen(&schedules, choice)?)
            {
                return Ok(());
            }
        }
        if self.best.is_none() {
            // What runs again takes parameter blocks: the smallest plan need not
            // be the slowest.
            let mut choices: Vec<&Choice> = schedules.choices.iter().collect();
            choices.sort_by_key(|c| c.bytes);
            for choice in choices {
                if self.smaller(choice.bytes) {
                    break;
                }
                self.take(&candidate.chosen(&schedules, choice)?);
            }
        }
        Ok(())
    }

    /// Whether a plan at most this large is known.
    fn smaller(&self, bytes: u64) -> bool {
        self.smallest.as_ref().is_some_and(|s| s.peak_bytes <= bytes)
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
