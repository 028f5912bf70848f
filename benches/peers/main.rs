//! Training steps that `pytorch.py` beside this file runs in PyTorch too, on two
//! threads: `cargo bench --bench peers`, then `python benches/peers/pytorch.py`.
//! `compare.sh` does both, in turn.
#![allow(missing_docs)]

#[path = "../support/shares.rs"]
mod shares;

use std::time::Instant;

use plimsoll::models::Gpt2;
use plimsoll::ops::{Convolution, CrossEntropy};
use plimsoll::optimizers::{Adam, Recipe};
use plimsoll::{Batch, DType, Graph, Loss, Model, PlanRequest, Result, Trainer, nn};

/// Steps that are timed, after as many to warm up.
const STEPS: usize = 40;
const WARM_UP_STEPS: usize = 10;

/// Convolutions of 3×3 to 32, 64 (stride 2) and 64 channels, the mean of each
/// plane, and ten classes.
struct Cnn;

impl Model for Cnn {
    fn name(&self) -> &str {
        "cnn"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let mut x = g.input("x", &[batch, 1, 28, 28], DType::F32)?;
        for (name, outputs, stride) in [("conv1", 32, 1), ("conv2", 64, 2), ("conv3", 64, 1)] {
            let c = Convolution::new(2).stride(&[stride; 2]).padding(&[1, 1]);
            x = nn::conv(g, name, x, outputs, &[3, 3], &c)?;
            x = g.relu(x)?;
        }
        let x = g.global_avg_pool(x)?;
        let logits = nn::linear(g, "fc", x, 10)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        g.cross_entropy(logits, labels, CrossEntropy::default())
    }
}

/// Steps of a model: prints the median rate.
fn run(model: &dyn Model, recipe: &Recipe, batch: usize, data: &Batch<'_>, unit: (&str, usize)) {
    let device = plimsoll_cpu::CpuDevice::with_threads(2).expect("opens");
    let request = PlanRequest::new(model, recipe, batch, 1 << 40);
    let mut trainer = Trainer::new(&request, &device, 0).expect("plans");
    let mut seconds = Vec::new();
    for step in 0..WARM_UP_STEPS + STEPS {
        let start = Instant::now();
        trainer.train_step(data, 3e-4).expect("runs");
        trainer.synchronize().expect("runs");
        if step >= WARM_UP_STEPS {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let (name, each) = unit;
    println!(
        "plimsoll {}: median {:.1} ms, {:.0} {name}/s, peak {:.1} MiB",
        model.name(),
        median * 1e3,
        (batch * each) as f64 / median,
        trainer.plan().peak_bytes as f64 / f64::from(1 << 20)
    );
    if std::env::args().any(|a| a == "--shares") {
        shares::print(model.name(), &mut trainer, data);
    }
}

fn main() {
    let gpt = Gpt2 {
        name: "gpt",
        vocabulary: 256,
        positions: 128,
        length: 128,
        layers: 4,
        width: 128,
        heads: 4,
        dropout: 0.0,
    };
    let tokens: Vec<i32> = (0..8 * 129).map(|i: i32| (i * i / 7 + i) % 256).collect();
    let windows = |shift: usize| -> Vec<i32> {
        (0..8).flat_map(|b| tokens[b * 129 + shift..][..128].to_vec()).collect()
    };
    let (inputs, targets) = (windows(0), windows(1));
    let data = Batch::from([
        ("tokens", bytemuck::cast_slice(&inputs)),
        ("targets", bytemuck::cast_slice(&targets)),
    ]);
    run(&gpt, &Adam::adamw().into(), 8, &data, ("tokens", 128));
    let x: Vec<f32> = (0..64 * 784).map(|i: i32| (i % 31) as f32 / 15.0 - 1.0).collect();
    let labels: Vec<i32> = (0..64).map(|i| i % 10).collect();
    let data =
        Batch::from([("x", bytemuck::cast_slice(&x)), ("labels", bytemuck::cast_slice(&labels))]);
    run(&Cnn, &Adam::default().into(), 64, &data, ("images", 1));
}
