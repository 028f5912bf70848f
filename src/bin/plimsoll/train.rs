//! `plimsoll train`: trains a model inside its budget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{RangedU64ValueParser, ValueParser};
use plimsoll::data::{Batches, DataError, ImageDataset};
use plimsoll::ledger::Ledger;
use plimsoll::{Batch, Error, Plan, Trainer};

use crate::choices::{Choices, Setup};
use crate::failure::Failure;
use crate::output;
use crate::plan::{PlanReport, plan};
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

    /// Decides the first weights and the order of the items
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Threads of the device cpu; the results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
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
    let setup = choices.open(arguments.threads)?;
    let items = setup.data.train.items();
    if setup.batch > items {
        let error = DataError::SmallerThanBatch { items, batch_items: setup.batch };
        return Err(error.into());
    }
    let (plan, report) = plan(choices, &setup)?;
    check_images(&plan, &setup)?;
    let rate = arguments.lr.unwrap_or_else(|| setup.recipe.optimizer.default_learning_rate());
    let mut reporter = Reporter::new(choices.json);
    reporter.plan(&report, &introduction(arguments, &setup, rate))?;
    if let Some(note) = choices.batch_note(&setup) {
        output::note(&format!("note: {note}"));
    }
    train(arguments, setup, plan, report, rate, &mut reporter)
}

/// What people read above the plan.
fn introduction(arguments: &Arguments, setup: &Setup, rate: f32) -> String {
    let device = setup.device.description();
    let data = &setup.data;
    let shape: Vec<String> = data.train.item_shape.iter().map(ToString::to_string).collect();
    format!(
        "device   {} ({}, {})\ndata     {}: {} training and {} test images of {}\ntraining {}, \
         learning rate {rate}, seed {}",
        device.id,
        device.name,
        device.driver,
        data.source,
        output::grouped(data.train.items() as u64),
        output::grouped(data.test.items() as u64),
        shape.join("×"),
        output::count(arguments.epochs as usize, "epoch", "epochs"),
        arguments.seed
    )
}

/// Images of another size than the model takes are the data's fault, and are
/// told before anything is loaded.
fn check_images(plan: &Plan, setup: &Setup) -> Result<(), Error> {
    let part = plan.micro_batches.first().map(|m| (m.items, &plan.parts[m.part]));
    let wanted = part.and_then(|(items, part)| {
        let (_, operand) = part.inputs.iter().find(|(name, _)| name == "images")?;
        Some(operand.tensor.numel() / items)
    });
    let given = setup.data.train.item_bytes();
    match wanted {
        Some(wanted) if wanted != given => Err(Error::Input {
            name: "images".into(),
            message: format!(
                "the images of {} have {given} pixels (shape {:?}), but the model {} takes \
                 {wanted}; name another --data",
                setup.data.source,
                setup.data.train.item_shape,
                setup.model.name()
            ),
        }),
        _ => Ok(()),
    }
}

fn train(
    arguments: &Arguments,
    setup: Setup,
    plan: Plan,
    report: PlanReport,
    rate: f32,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let Setup { recipe, device, data, batch, budget_bytes, .. } = setup;
    let ledger = Ledger::new(budget_bytes);
    let mut trainer = Trainer::load(Arc::new(plan), recipe, &*device, ledger, arguments.seed)?;
    reporter.notes(&trainer.notes())?;
    let mut batches = Batches::training(Arc::new(data.train), batch, arguments.seed, 0)?;
    let steps = batches.batches_per_epoch();
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
            let inputs = Batch::from([
                ("images", items.images.as_slice()),
                ("labels", bytemuck::cast_slice(&items.labels)),
            ]);
            trainer.train_step(&inputs, rate)?;
            batches.recycle(items);
            done += 1;
            if done % between == 0 || done == steps {
                let loss = finite(trainer.loss()?, &trainer)?;
                losses.push(loss);
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
            accuracy: evaluation.accuracy,
            items_per_second: (done * batch) as f64 / seconds.as_secs_f64(),
            seconds: seconds.as_secs_f64(),
        };
        reporter.epoch(&report)?;
        last = Some(report);
    }
    // There is at least one epoch, by the range of the flag.
    let Some(last) = last else { return Ok(()) };
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

fn evaluate(trainer: &mut Trainer, test: &ImageDataset) -> Result<plimsoll::Evaluation, Error> {
    let inputs = Batch::from([
        ("images", test.images.as_slice()),
        ("labels", bytemuck::cast_slice(&test.labels)),
    ]);
    trainer.evaluate(&inputs, test.items())
}

fn finite(loss: f64, trainer: &Trainer) -> Result<f64, Failure> {
    match loss.is_finite() {
        true => Ok(loss),
        false => Err(Failure::Diverged { step: trainer.steps(), loss }),
    }
}
