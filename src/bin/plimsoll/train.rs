//! `plimsoll train`: trains a model inside its budget.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::{RangedU64ValueParser, ValueParser};
use clap::{Args, ValueEnum};
use plimsoll::data::{Batches, DataError, Dataset, Split};
use plimsoll::ledger::Ledger;
use plimsoll::optimizers::{Decay, Schedule};
use plimsoll::program::EVALUATION_SUMS;
use plimsoll::weights::{NameMap, load_model, save_model};
use plimsoll::{Evaluation, Plan, Trainer};

use crate::choices::{Choices, Setup};
use crate::failure::Failure;
use crate::output;
use crate::plan::{PlanReport, plan};
use crate::plot::Curves;
use crate::report::{Done, Epoch, Reporter, Step};

/// Train a model inside a budget: prints the plan, the progress, the accuracy on the test set and
/// the ledger
///
/// Every epoch shuffles the training set by seed and epoch, and leaves out the items that are left
/// over after the last whole batch. The loss is read now and then only, since reading waits for
/// the device. Under --json the events are plan, step (the training loss at that step), epoch and
/// done, whose loss and accuracy are those of the test set.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub choices: Choices,

    /// Passes over the training set
    #[arg(long, value_name = "E", default_value_t = 3, allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    epochs: u32,

    /// The learning rate [default: 0.001 for adam and adamw, 0.1 for sgd]
    #[arg(long, value_name = "X", allow_hyphen_values = true,
          value_parser = ValueParser::new(learning_rate))]
    lr: Option<f32>,

    /// How the learning rate falls
    #[arg(long, value_name = "S", value_enum, default_value_t = ScheduleName::Constant)]
    schedule: ScheduleName,

    /// Steps over which the learning rate rises from 0 first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    warmup: u64,

    /// Begin with the weights of this safetensors file, as this command or the model's publisher
    /// writes it
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,

    /// A JSON object from the names in the file of --load to those of the model
    #[arg(long, value_name = "FILE", requires = "load")]
    load_map: Option<PathBuf>,

    /// Write the weights to this safetensors file in the end
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Draw the losses into this file, an SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Decides the first weights and the order of the items
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Threads of the device cpu; the results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

/// A schedule on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum ScheduleName {
    /// Not at all
    Constant,
    /// To 0 along half a cosine
    Cosine,
    /// To a tenth after each third of the steps
    Step,
}

impl Arguments {
    fn schedule(&self, total_steps: u64) -> Schedule {
        let decay = match self.schedule {
            ScheduleName::Constant => Decay::Constant,
            ScheduleName::Cosine => Decay::Cosine { floor: 0.0 },
            ScheduleName::Step => Decay::Step { every: total_steps.div_ceil(3), factor: 0.1 },
        };
        Schedule { warmup_steps: self.warmup, total_steps, decay }
    }
}

fn learning_rate(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("expected a finite number that is not negative, such as 0.001 or 1e-3".into()),
    }
}

/// Most steps between two readings of the loss.
const STEPS_BETWEEN_READINGS: usize = 20;
/// Fewest readings of an epoch that has as many steps.
const READINGS_PER_EPOCH: usize = 10;

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let choices = &arguments.choices;
    if let Some(path) = &arguments.plot {
        Curves::check(path).map_err(Failure::Usage)?;
    }
    // Told now, and not after hours of training.
    for path in arguments.save.iter().chain(&arguments.plot) {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Failure::File { path: path.clone(), source });
        }
    }
    let mut setup = choices.open(arguments.threads)?;
    let Some(data) = setup.data.take() else {
        return Err(Failure::Usage(format!(
            "{} needs --data; or name --image 28x28 --channels 1 --classes 10, the sizes of the \
             embedded sample",
            choices.model
        )));
    };
    setup.data = Some(data.clone());
    let items = data.train.items();
    if setup.batch > items {
        let error = DataError::SmallerThanBatch { items, batch_items: setup.batch };
        return Err(error.into());
    }
    let (plan, report) = plan(choices, &setup)?;
    let rate = arguments.lr.unwrap_or_else(|| setup.recipe.optimizer.default_learning_rate());
    let mut reporter = Reporter::new(choices.json);
    reporter.plan(&report, &introduction(arguments, &setup, &data, rate))?;
    if let Some(note) = choices.batch_note(&setup) {
        output::note(&format!("note: {note}"));
    }
    train(arguments, setup, data, plan, report, rate, &mut reporter)
}

/// What people read above the plan.
fn introduction(arguments: &Arguments, setup: &Setup, data: &Split, rate: f32) -> String {
    let device = setup.device.description();
    format!(
        "device   {} ({}, {})\ndata     {}: {} training and {} test items\ntraining {}, \
         learning rate {rate}, seed {}",
        device.id,
        device.name,
        device.driver,
        data.source,
        output::grouped(data.train.items() as u64),
        output::grouped(data.test.items() as u64),
        output::count(arguments.epochs as usize, "epoch", "epochs"),
        arguments.seed
    )
}

fn train(
    arguments: &Arguments,
    setup: Setup,
    data: Split,
    plan: Plan,
    report: PlanReport,
    rate: f32,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let Setup { model, recipe, device, batch, budget_bytes, .. } = setup;
    let ledger = Ledger::new(budget_bytes);
    let mut trainer = Trainer::load(Arc::new(plan), recipe, &*device, ledger, arguments.seed)?;
    reporter.notes(&trainer.notes())?;
    if let Some(path) = &arguments.load {
        let names = match &arguments.load_map {
            Some(map) => NameMap::from_json_file(map)?,
            None => NameMap::published(model.name()),
        };
        let loaded = load_model(&mut trainer, path, &names)?;
        output::note(&format!(
            "note: {} tensors loaded from {}, {} passed over",
            loaded.tensors,
            path.display(),
            loaded.ignored.len()
        ));
    }
    let scored = trainer.plan().leaves.contains_key(EVALUATION_SUMS[2]);
    let mut batches = Batches::training(data.train, batch, arguments.seed, 0)?;
    let steps = batches.batches_per_epoch();
    let schedule = arguments.schedule(steps as u64 * u64::from(arguments.epochs));
    schedule.check()?;
    let mut curves = Curves::default();
    let between = (steps / READINGS_PER_EPOCH).clamp(1, STEPS_BETWEEN_READINGS);
    let mut training = Duration::ZERO;
    let mut last = None;
    for epoch in 0..arguments.epochs {
        if epoch > 0 {
            batches.start_epoch(epoch.into())?;
        }
        reporter.begin_epoch(epoch + 1, arguments.epochs, steps);
        let begin = Instant::now();
        let mut losses = Vec::new();
        let mut done = 0;
        while let Some(items) = batches.next() {
            let factor = schedule.factor(trainer.steps() + 1);
            trainer.train_step(&items.batch(), rate * factor)?;
            batches.recycle(items);
            done += 1;
            if done % between == 0 || done == steps {
                let loss = finite(trainer.loss()?, &trainer)?;
                losses.push(loss);
                curves.train.push((trainer.steps() as f64, loss));
                reporter.step(&Step {
                    event: "step",
                    epoch: epoch + 1,
                    step: trainer.steps(),
                    loss,
                    items_per_second: (done * batch) as f64 / begin.elapsed().as_secs_f64(),
                })?;
            }
            reporter.advance();
        }
        let seconds = begin.elapsed();
        training += seconds;
        let evaluation = evaluate(&mut trainer, &data.test)?;
        let report = Epoch {
            event: "epoch",
            epoch: epoch + 1,
            steps: trainer.steps(),
            train_loss: losses.iter().sum::<f64>() / losses.len().max(1) as f64,
            loss: finite(evaluation.loss, &trainer)?,
            accuracy: scored.then_some(evaluation.accuracy),
            items_per_second: (done * batch) as f64 / seconds.as_secs_f64(),
            seconds: seconds.as_secs_f64(),
        };
        reporter.epoch(&report)?;
        curves.test.push((trainer.steps() as f64, report.loss));
        last = Some(report);
    }
    // There is at least one epoch, by the range of the flag.
    let Some(last) = last else { return Ok(()) };
    let file = |path: &PathBuf, source| Failure::File { path: path.clone(), source };
    if let Some(path) = &arguments.plot {
        let svg = curves.svg().map_err(|e| file(path, std::io::Error::other(e.to_string())))?;
        output::write_whole(path, &svg).map_err(|source| file(path, source))?;
    }
    if let Some(path) = &arguments.save {
        save_model(&mut trainer, path)?;
    }
    let ledger = trainer.ledger();
    reporter.done(&Done {
        event: "done",
        accuracy: last.accuracy,
        loss: last.loss,
        train_loss: last.train_loss,
        epochs: arguments.epochs,
        steps: trainer.steps(),
        items_per_second: (trainer.steps() * batch as u64) as f64 / training.as_secs_f64(),
        training_seconds: training.as_secs_f64(),
        budget_bytes,
        planned_peak_bytes: report.peak_bytes(),
        requested_peak_bytes: ledger.peak_bytes,
        requests: ledger.requests,
        micro_batches: report.micro_batches(),
        device: device.description().id.clone(),
        device_name: device.description().name.clone(),
        seed: arguments.seed,
    })
}

fn evaluate(trainer: &mut Trainer, test: &Arc<dyn Dataset>) -> Result<Evaluation, Failure> {
    trainer.begin_evaluation()?;
    for items in Batches::evaluation(Arc::clone(test), trainer.evaluation_items()?)? {
        trainer.evaluate_batch(&items.batch(), items.count)?;
    }
    Ok(trainer.end_evaluation()?)
}

fn finite(loss: f64, trainer: &Trainer) -> Result<f64, Failure> {
    match loss.is_finite() {
        true => Ok(loss),
        false => Err(Failure::Diverged { step: trainer.steps(), loss }),
    }
}
