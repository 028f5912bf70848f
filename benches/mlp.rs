//! One `mlp` training step at batch 256 on every device, and where its time
//! goes. `cargo bench --bench mlp`.
#![allow(missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll::models::Mlp;
use plimsoll::{Batch, NullDevice, PlanRequest, plan};
use support::{AMPLE, adamw, devices, sample, trainer};

const BATCH: usize = 256;

fn step(c: &mut Criterion) {
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let data = sample();
    let images = &data.train.images[..BATCH * data.train.item_bytes()];
    let batch = Batch::from([
        ("images", images),
        ("labels", bytemuck::cast_slice(&data.train.labels[..BATCH])),
    ]);
    let mut group = c.benchmark_group("mlp step");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    for device in devices() {
        let name = device.description().name.clone();
        let mut t = trainer(&model, &adamw(), &*device, BATCH, None).expect("plans");
        group.bench_function(&name, |b| {
            b.iter(|| {
                t.train_step(&batch, 1e-3).expect("runs");
                t.synchronize().expect("runs");
            });
        });
        shares(&name, &mut t, &batch);
    }
    group.finish();
}

/// Prints the share of each op, from the median of each node over 30 steps.
fn shares(name: &str, t: &mut plimsoll::Trainer, batch: &Batch<'_>) {
    let plan = t.plan().clone();
    let mut seconds = std::collections::BTreeMap::<(usize, usize), Vec<f64>>::new();
    for _ in 0..30 {
        for time in t.profile_step(batch, 1e-3).expect("runs") {
            seconds.entry((time.part, time.node)).or_default().push(time.seconds);
        }
    }
    let mut by_op = std::collections::BTreeMap::<&str, f64>::new();
    let mut total = 0.0;
    for ((part, node), mut seconds) in seconds {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        let node = &plan.parts[part].nodes[node];
        *by_op.entry(node.op.name()).or_default() += median;
        total += median;
        if std::env::var_os("PLIMSOLL_BENCH_NODES").is_some() {
            println!("  {:40} {:8.1} µs", node.label, median * 1e6);
        }
    }
    println!("{name}: {:.3} ms a step, op by op", total * 1e3);
    for (op, seconds) in by_op {
        println!("  {op:24} {:5.1} %", 100.0 * seconds / total);
    }
}

fn planning(c: &mut Criterion) {
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let device = NullDevice::new(1 << 40);
    let description = plimsoll::Device::description(&device);
    let recipe = adamw();
    c.bench_function("plan mlp", |b| {
        b.iter(|| {
            let request = PlanRequest {
                model: &model,
                recipe: &recipe,
                batch: BATCH,
                evaluate_items: Some(10_000),
                predict_items: None,
                budget_bytes: AMPLE,
                micro_batches: None,
                split_batch_statistics: false,
            };
            plan(&request, description).expect("plans")
        });
    });
}

criterion_group!(benches, planning, step);
criterion_main!(benches);
