//! Whole models, trained for twenty steps on the device and on the CPU.

use std::sync::Arc;

use super::{Outcome, Test};
use crate::data::embedded_sample;
use crate::models::Mlp;
use crate::optimizers::{Adam, Recipe, Sgd};
use crate::{Batch, Device, Error, Model, PlanRequest, Result, Trainer};

const STEPS: usize = 20;

/// Largest relative difference between two loss curves.
///
/// A loss is a mean of sums of up to 784 terms: by [`bound`](super::bound) two
/// devices differ by about √(784/6)·2⁻²⁴ ≈ 7·10⁻⁷ at the first step. Weights
/// then drift apart: each step turns the gradient's relative error into one of
/// the update, and what has drifted changes later gradients by its curvature,
/// at the rates used here by a factor below 1.25 a step. 7·10⁻⁷ · Σ 1.25ᵗ over
/// twenty steps is 2.4·10⁻⁴.
const BOUND: f64 = 2.4e-4;

pub fn tests() -> Vec<Test> {
    let sgd = Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    let mut out = Vec::new();
    let mut add = |name: &str, widths: &[usize], dropout, recipe: Recipe, rate, k| {
        let widths = widths.to_vec();
        out.push(Test::new(format!("trajectory/{name}/steps"), move |device| {
            let model = Mlp::new(&widths)?.with_dropout(dropout);
            compare(&model, &recipe, rate, k, device)
        }));
    };
    let adamw = || Recipe::from(Adam::adamw());
    add("mlp_sgd", &[784, 65, 33, 10], 0.0, sgd.into(), 0.05, None);
    add("mlp_adamw", &[784, 65, 33, 10], 0.0, adamw(), 1e-3, None);
    add("mlp_dropout_3_micro_batches", &[784, 65, 33, 10], 0.2, adamw(), 1e-3, Some(3));
    out
}

fn curve(
    model: &dyn Model,
    recipe: &Recipe,
    rate: f32,
    micro_batches: Option<usize>,
    device: &dyn Device,
) -> Result<Vec<f64>> {
    const BATCH: usize = 50;
    let data = embedded_sample()
        .map_err(|e| Error::Input { name: "sample".into(), message: e.to_string() })?
        .train;
    let request = PlanRequest { micro_batches, ..PlanRequest::new(model, recipe, BATCH, 1 << 30) };
    let mut trainer = Trainer::new(&request, device, 1)?;
    let bytes = data.item_bytes();
    (0..STEPS)
        .map(|s| {
            let first = s * BATCH % (data.items() - BATCH);
            let images = &data.images[first * bytes..(first + BATCH) * bytes];
            let labels = bytemuck::cast_slice(&data.labels[first..first + BATCH]);
            trainer.train_step(&Batch::from([("images", images), ("labels", labels)]), rate)?;
            trainer.loss()
        })
        .collect()
}

#[cfg(feature = "cpu")]
fn compare(
    model: &dyn Model,
    recipe: &Recipe,
    rate: f32,
    micro_batches: Option<usize>,
    device: &Arc<dyn Device>,
) -> Result<Outcome> {
    if device.description().backend == "cpu" {
        return Ok(Outcome::Skipped {
            why: "the cpu backend is what others are compared with".into(),
        });
    }
    let cpu = plimsoll_cpu::CpuDevice::new()?;
    let expected = curve(model, recipe, rate, micro_batches, &cpu)?;
    let got = curve(model, recipe, rate, micro_batches, &**device)?;
    let error = got.iter().zip(&expected).map(|(x, r)| (x - r).abs() / r.abs());
    // A NaN must not vanish in the maximum.
    let error =
        error.fold(0.0, |worst: f64, e| if e.is_nan() { f64::INFINITY } else { worst.max(e) });
    Ok(super::judge("relative difference of the losses", error, BOUND))
}

#[cfg(not(feature = "cpu"))]
fn compare(
    _: &dyn Model,
    _: &Recipe,
    _: f32,
    _: Option<usize>,
    _: &Arc<dyn Device>,
) -> Result<Outcome> {
    let _ = (curve, BOUND);
    Ok(Outcome::Skipped { why: "needs the cpu backend to compare with".into() })
}
