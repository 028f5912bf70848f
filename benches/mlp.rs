//! One `mlp` training step at batch 256 on every device, and where its time
//! goes. `cargo bench --bench mlp`.
#![allow(missing_docs)]

#[path = "support/shares.rs"]
mod shares;
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
        shares::print(&name, &mut t, &batch);
    }
    group.finish();
}

fn planning(c: &mut Criterion) {
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let device = NullDevice::new(1 << 40);
    let description = plimsoll::Device::description(&device);
    let recipe = adamw();
    c.bench_function("plan mlp", |b| {
        b.iter(|| {
            let request = PlanRequest {
                evaluate_items: Some(10_000),
                ..PlanRequest::new(&model, &recipe, BATCH, AMPLE)
            };
            plan(&request, description).expect("plans")
        });
    });
}

criterion_group!(benches, planning, step);
criterion_main!(benches);
