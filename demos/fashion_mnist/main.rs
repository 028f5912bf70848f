//! Trains a perceptron on Fashion-MNIST twice: with all the memory that it
//! likes, and with the least that works. The losses agree, and the ledger
//! holds both times.
//!
//! usage: `fashion_mnist [DEVICE [DATA-FOLDER]]`

use std::sync::Arc;

use anyhow::{Result, ensure};
use plimsoll::data::{Batches, TrainTest, embedded_sample, load_folder};
use plimsoll::models::Mlp;
use plimsoll::optimizers::Adam;
use plimsoll::{Batch, Device, Error, Evaluation, PlanRequest, Trainer, devices, plan};

const BATCH: usize = 200;
const EPOCHS: u64 = 3;
const LEARNING_RATE: f32 = 1e-3;
const SEED: u64 = 0;

/// What a training under one budget came to.
struct Outcome {
    losses: Vec<f64>,
    evaluation: Evaluation,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let device = match arguments.next() {
        Some(name) => devices::open(&name)?,
        None => devices::open_default()?,
    };
    let data = match arguments.next() {
        Some(folder) => load_folder(folder)?,
        None => embedded_sample()?,
    };
    let model = Mlp::new(&Mlp::FASHION_MNIST)?;
    let recipe = Adam::adamw().into();
    let mut request = PlanRequest {
        evaluate_items: Some(data.test.items()),
        ..PlanRequest::new(&model, &recipe, BATCH, u64::MAX)
    };
    println!("{} on {}", data.source, device.description().name);

    // A plan needs no device, only its description: ask what the step takes.
    request.budget_bytes = plan(&request, device.description())?.peak_bytes;
    let ample = train(&request, &*device, &data)?;
    // And ask for the impossible, to learn what the least is.
    request.budget_bytes = 1;
    if let Err(Error::OverBudget(over)) = plan(&request, device.description()) {
        request.budget_bytes = over.minimum_bytes;
    }
    let tight = train(&request, &*device, &data)?;

    let apart = |(a, b): (&f64, &f64)| (a - b).abs() / a.abs();
    let furthest = ample.losses.iter().zip(&tight.losses).map(apart).fold(0.0, f64::max);
    println!(
        "{} steps: the losses differ by at most {furthest:.1e}; accuracy {:.3} and {:.3}",
        ample.losses.len(),
        ample.evaluation.accuracy,
        tight.evaluation.accuracy
    );
    ensure!(furthest < 1e-3, "micro-batches change the order of sums, and no more than that");
    Ok(())
}

fn train(request: &PlanRequest<'_>, device: &dyn Device, data: &TrainTest) -> Result<Outcome> {
    let mut trainer = Trainer::new(request, device, SEED)?;
    let mut batches = Batches::training(Arc::new(data.train.clone()), BATCH, SEED, 0)?;
    let mut losses = Vec::new();
    for epoch in 0..EPOCHS {
        batches.start_epoch(epoch)?;
        while let Some(items) = batches.next() {
            trainer.train_step(&items.batch(), LEARNING_RATE)?;
            losses.push(trainer.loss()?);
            batches.recycle(items);
        }
    }
    let labels = bytemuck::cast_slice(&data.test.labels);
    let test = Batch::from([("images", data.test.images.as_slice()), ("labels", labels)]);
    let evaluation = trainer.evaluate(&test, data.test.items())?;

    let (plan, ledger) = (trainer.plan(), trainer.ledger());
    println!(
        "budget {:>10} bytes: micro-batches {:>3}, planned peak {:>10}, requested {:>10}",
        ledger.budget_bytes,
        plan.micro_batches.len(),
        plan.peak_bytes,
        ledger.peak_bytes
    );
    ensure!(ledger.peak_bytes == plan.peak_bytes, "the plan and the ledger differ");
    ensure!(ledger.peak_bytes <= request.budget_bytes, "the line does not hold");
    Ok(Outcome { losses, evaluation })
}
