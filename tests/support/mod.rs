//! What several test programs share.
#![allow(dead_code)]

pub mod error;
pub mod evaluate;
pub mod fixtures;
pub mod random;

use std::sync::Arc;

use plimsoll::data::{TrainTest, embedded_sample};
use plimsoll::models::Mlp;
use plimsoll::optimizers::{Adam, Recipe};
use plimsoll::{Batch, Device, Model, PlanRequest, Result, Trainer};

/// A budget that never binds.
pub const AMPLE: u64 = 1 << 40;

/// Every device of this machine, for tests that run on all of them.
pub fn devices() -> Vec<Arc<dyn Device>> {
    let all = plimsoll::devices::list().expect("devices can be listed");
    all.iter().map(|d| plimsoll::devices::open(&d.id).expect("a listed device opens")).collect()
}

/// The sample that the demo carries.
pub fn sample() -> TrainTest {
    embedded_sample().expect("the embedded sample is sound")
}

/// AdamW as the command uses it.
pub fn adamw() -> Recipe {
    Adam::adamw().into()
}

/// A trainer without evaluation.
pub fn trainer(
    model: &dyn Model,
    recipe: &Recipe,
    device: &dyn Device,
    batch: usize,
    micro_batches: Option<usize>,
) -> Result<Trainer> {
    let request = PlanRequest { micro_batches, ..PlanRequest::new(model, recipe, batch, AMPLE) };
    Trainer::new(&request, device, 7)
}

/// The model that tests train: small, but with every kind of op of the large one.
pub fn small_mlp() -> Mlp {
    Mlp::new(&[784, 33, 17, 10]).expect("valid widths")
}

/// Losses of `steps` training steps over the sample, in its own order.
pub fn losses(trainer: &mut Trainer, data: &TrainTest, steps: usize, rate: f32) -> Vec<f64> {
    let (batch, bytes) = (trainer.plan().batch, data.train.item_bytes());
    let batches = data.train.items() / batch;
    (0..steps)
        .map(|s| {
            let first = s % batches * batch;
            let images = &data.train.images[first * bytes..(first + batch) * bytes];
            let labels = bytemuck::cast_slice(&data.train.labels[first..first + batch]);
            let batch = Batch::from([("images", images), ("labels", labels)]);
            trainer.train_step(&batch, rate).expect("a step runs");
            trainer.loss().expect("a loss is there")
        })
        .collect()
}
