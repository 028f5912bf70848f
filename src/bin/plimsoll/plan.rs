//! `plimsoll plan`: what a training step would take, without running it.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use plimsoll::Plan;
use plimsoll::ledger::Class;
use serde::Serialize;

use crate::choices::{Choices, Setup};
use crate::failure::Failure;
use crate::output;

/// Plan a training step inside a budget and show its memory, without running it
#[derive(Args)]
pub struct Arguments {
    /// What is to be planned.
    #[command(flatten)]
    pub choices: Choices,
}

/// A plan in figures, as `--json` prints it.
#[derive(Serialize)]
pub struct PlanReport {
    model: String,
    batch: usize,
    /// Items of the largest micro-batch.
    micro_batch: usize,
    micro_batches: usize,
    /// Ops of a training step's parts that compute again what was dropped.
    recomputed_ops: usize,
    precision: &'static str,
    optimizer: &'static str,
    device: String,
    device_name: String,
    budget_bytes: u64,
    peak_bytes: u64,
    live_bound_bytes: u64,
    pages: usize,
    page_bytes: Vec<u64>,
    classes: BTreeMap<Class, u64>,
    /// The op at which the arena reaches its peak.
    peak_at: String,
    parameter_count: usize,
    step_seconds: f64,
    unconstrained_step_seconds: f64,
    plan_seconds: f64,
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let choices = &arguments.choices;
    let setup = choices.open(None)?;
    let (_, report) = plan(choices, &setup)?;
    if let Some(note) = choices.batch_note(&setup) {
        output::note(&format!("note: {note}"));
    }
    if choices.json {
        output::json(&report)?;
    } else {
        output::line(format!("device   {} ({})", report.device, report.device_name))?;
        output::line(report)?;
    }
    Ok(())
}

/// Plans and takes the time.
pub fn plan(choices: &Choices, setup: &Setup) -> Result<(Plan, PlanReport), Failure> {
    let device = setup.device.description();
    let begin = Instant::now();
    let plan = plimsoll::plan(&setup.request(setup.budget_bytes), device)?;
    let plan_seconds = begin.elapsed().as_secs_f64();
    let unconstrained = plimsoll::plan(&setup.request(u64::MAX), device)?;
    let parameters = plan.leaves.values().filter(|leaf| leaf.class == Class::Parameter);
    let report = PlanReport {
        model: choices.model.clone(),
        batch: plan.batch,
        micro_batch: plan.micro_batches.iter().map(|m| m.items).max().unwrap_or(0),
        micro_batches: plan.micro_batches.len(),
        recomputed_ops: plan.parts.iter().flat_map(|p| &p.nodes).filter(|n| n.again).count(),
        precision: "f32",
        optimizer: setup.recipe.optimizer.name(),
        device: device.id.clone(),
        device_name: device.name.clone(),
        budget_bytes: setup.budget_bytes,
        peak_bytes: plan.peak_bytes,
        live_bound_bytes: plan.live_bound_bytes,
        pages: plan.pages.len(),
        page_bytes: plan.pages.clone(),
        classes: plan.classes.clone(),
        peak_at: plan.peak_at.clone(),
        parameter_count: parameters.map(|leaf| leaf.operand.tensor.numel()).sum(),
        step_seconds: plan.step_seconds,
        unconstrained_step_seconds: unconstrained.step_seconds,
        plan_seconds,
    };
    Ok((plan, report))
}

impl PlanReport {
    /// All that loading the plan requests.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// How many micro-batches a step has.
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }
}

impl std::fmt::Display for PlanReport {
    /// A table for people, without a newline at its end.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "model    {}, {} parameters in {}, {}",
            self.model,
            output::grouped(self.parameter_count as u64),
            self.precision,
            self.optimizer
        )?;
        writeln!(
            f,
            "plan     batch {} in {} of {}{}, {}, made in {}",
            self.batch,
            output::count(self.micro_batches, "micro-batch", "micro-batches"),
            if self.micro_batch * self.micro_batches == self.batch { "" } else { "at most " },
            self.micro_batch,
            output::count(self.pages, "page", "pages"),
            output::seconds(self.plan_seconds)
        )?;
        writeln!(f, "  bytes at the peak, {}:", self.peak_at)?;
        for (class, bytes) in &self.classes {
            writeln!(f, "    {:<22}{:>12}", class_name(*class), output::size(*bytes))?;
        }
        writeln!(f, "  {:<24}{:>12}", "planned peak", output::size(self.peak_bytes))?;
        writeln!(f, "  {:<24}{:>12}", "budget", output::size(self.budget_bytes))?;
        if self.recomputed_ops > 0 {
            let ops = output::grouped(self.recomputed_ops as u64);
            writeln!(f, "  {:<24}{ops:>12}", "ops that run again")?;
        }
        write!(f, "  {:<24}{:>12}", "predicted step", output::seconds(self.step_seconds))?;
        if self.step_seconds > self.unconstrained_step_seconds {
            write!(f, "; {} without a budget", output::seconds(self.unconstrained_step_seconds))?;
        }
        Ok(())
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Parameter => "parameters",
        Class::Gradient => "gradients",
        Class::OptimizerState => "optimizer state",
        Class::Activation => "activations",
        Class::ActivationGradient => "activation gradients",
        Class::Input => "inputs",
        Class::State => "state",
        Class::Workspace => "workspace",
        Class::Gap => "gaps",
        Class::ParameterBlock => "parameter blocks",
        Class::Staging => "staging",
    }
}
