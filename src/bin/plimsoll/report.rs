//! What `plimsoll train` prints on its way: events as JSON, or lines and a
//! progress bar for people.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;
use crate::plan::PlanReport;

/// A reading of the training loss.
#[derive(Serialize)]
pub struct Step {
    pub event: &'static str,
    /// From 1.
    pub epoch: u32,
    /// Steps done in all epochs.
    pub step: u64,
    /// Mean over the batch of this step.
    pub loss: f64,
    /// In this epoch so far.
    pub items_per_second: f64,
}

/// The end of an epoch.
#[derive(Serialize)]
pub struct Epoch {
    pub event: &'static str,
    /// From 1.
    pub epoch: u32,
    /// Steps done in all epochs.
    pub steps: u64,
    /// Mean of the readings of this epoch.
    pub train_loss: f64,
    /// On the test set.
    pub loss: f64,
    /// On the test set, from 0 to 1; none for models that are not right or
    /// wrong.
    pub accuracy: Option<f64>,
    /// Without the evaluation.
    pub items_per_second: f64,
    /// Without the evaluation.
    pub seconds: f64,
}

/// The end of the run.
#[derive(Serialize)]
pub struct Done {
    pub event: &'static str,
    /// On the test set, from 0 to 1; none for models that are not right or
    /// wrong.
    pub accuracy: Option<f64>,
    /// On the test set.
    pub loss: f64,
    /// Mean of the readings of the last epoch.
    pub train_loss: f64,
    pub epochs: u32,
    pub steps: u64,
    /// Without the evaluations.
    pub items_per_second: f64,
    /// Without the evaluations.
    pub training_seconds: f64,
    pub budget_bytes: u64,
    pub planned_peak_bytes: u64,
    pub requested_peak_bytes: u64,
    /// Requests for memory ever granted.
    pub requests: u64,
    pub micro_batches: usize,
    pub device: String,
    pub device_name: String,
    pub seed: u64,
}

/// The first event of a run.
#[derive(Serialize)]
struct PlanEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    report: &'a PlanReport,
}

/// Prints a run's events in the form that the user chose.
pub struct Reporter {
    json: bool,
    bar: ProgressBar,
}

impl Reporter {
    /// A reporter before the first event.
    pub fn new(json: bool) -> Reporter {
        Reporter { json, bar: ProgressBar::hidden() }
    }

    /// The plan, which people read below an introduction.
    pub fn plan(&self, report: &PlanReport, introduction: &str) -> Result<(), Failure> {
        match self.json {
            true => output::json(&PlanEvent { event: "plan", report })?,
            false => output::line(format!("{introduction}\n{report}"))?,
        }
        Ok(())
    }

    /// The backend's notes on the loaded plan.
    pub fn notes(&self, notes: &[String]) -> Result<(), Failure> {
        for note in notes.iter().filter(|_| !self.json) {
            output::line(format!("  {note}"))?;
        }
        Ok(())
    }

    /// Starts the progress bar of an epoch, where standard error is a terminal.
    pub fn begin_epoch(&mut self, epoch: u32, epochs: u32, steps: usize) {
        if self.json {
            return;
        }
        let template = "{prefix}  [{bar:30}] {pos}/{len} steps  {msg}";
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        self.bar = ProgressBar::new(steps as u64)
            .with_style(style)
            .with_prefix(format!("epoch {epoch}/{epochs}"));
        // Shows life even while a single step is slow.
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// One more step is done.
    pub fn advance(&self) {
        self.bar.inc(1);
    }

    /// A reading.
    pub fn step(&self, step: &Step) -> Result<(), Failure> {
        if self.json {
            output::json(step)?;
        } else {
            let rate = output::grouped(step.items_per_second as u64);
            self.bar.set_message(format!("loss {:.4}, {rate} items/s", step.loss));
        }
        Ok(())
    }

    /// The end of an epoch.
    pub fn epoch(&self, epoch: &Epoch) -> Result<(), Failure> {
        let prefix = self.bar.prefix();
        self.bar.finish_and_clear();
        match self.json {
            true => output::json(epoch)?,
            false => output::line(format!(
                "{prefix}  train loss {:.4}, test loss {:.4}{}, {} items/s",
                epoch.train_loss,
                epoch.loss,
                epoch.accuracy.map_or(String::new(), |a| format!(", accuracy {a:.4}")),
                output::grouped(epoch.items_per_second as u64)
            ))?,
        }
        Ok(())
    }

    /// The end of the run: the ledger.
    pub fn done(&self, done: &Done) -> Result<(), Failure> {
        if self.json {
            return Ok(output::json(done)?);
        }
        let difference =
            i128::from(done.requested_peak_bytes) - i128::from(done.planned_peak_bytes);
        output::line(format!(
            "done     {} on the test set after {}, {} items/s\nledger\n  {:<16}{:>20} \
             bytes\n  {:<16}{:>20} bytes\n  {:<16}{:>20} bytes in {}\n  {:<16}{:>20} bytes",
            done.accuracy.map_or(format!("loss {:.4}", done.loss), |a| format!("accuracy {a:.4}")),
            output::count(done.steps as usize, "step", "steps"),
            output::grouped(done.items_per_second as u64),
            "budget",
            output::grouped(done.budget_bytes),
            "planned peak",
            output::grouped(done.planned_peak_bytes),
            "requested peak",
            output::grouped(done.requested_peak_bytes),
            output::count(done.requests as usize, "request", "requests"),
            "difference",
            difference
        ))?;
        Ok(())
    }
}
