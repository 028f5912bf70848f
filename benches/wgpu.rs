//! What the wgpu backend costs besides the kernels: a start from nothing to
//! the first finished step, tuning included, and encoding and submitting a
//! dispatch. `cargo bench --bench wgpu`; `MESA_SHADER_CACHE_DISABLE=true` keeps
//! Mesa's own cache out of it.
#![allow(missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll::graph::Leaf;
use plimsoll::ledger::{Class, Ledger};
use plimsoll::models::Mlp;
use plimsoll::ops::TensorType;
use plimsoll::planner::liveness::Layout;
use plimsoll::planner::{PartKind, place};
use plimsoll::program::finish;
use plimsoll::{Batch, DType, Device, Graph, Init, Mode};
use support::{adamw, sample, trainer};

const DISPATCHES: usize = 200;

fn gpus() -> Vec<String> {
    let all = plimsoll::devices::list().expect("devices can be listed");
    all.iter().filter(|d| d.backend == "wgpu").map(|d| d.id.clone()).collect()
}

fn start(c: &mut Criterion) {
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let data = sample();
    let images = &data.train.images[..256 * data.train.item_bytes()];
    let batch = Batch::from([
        ("images", images),
        ("labels", bytemuck::cast_slice(&data.train.labels[..256])),
    ]);
    let mut group = c.benchmark_group("first mlp step");
    group.sample_size(10);
    for id in gpus() {
        let mut name = id.clone();
        group.bench_function(&id, |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    // A folder that is not there: nothing is cached.
                    let folder = tempfile::tempdir().expect("a folder");
                    // SAFETY: no other thread of this program reads variables now.
                    unsafe { std::env::set_var("PLIMSOLL_CACHE_DIR", folder.path()) };
                    let start = Instant::now();
                    let device = plimsoll::devices::open(&id).expect("opens");
                    let mut t = trainer(&model, &adamw(), &*device, 256, None).expect("plans");
                    t.train_step(&batch, 1e-3).expect("runs");
                    t.synchronize().expect("runs");
                    total += start.elapsed();
                    name = device.description().name.clone();
                }
                total
            });
        });
        println!("{id} is {name}");
    }
    group.finish();
}

/// A part of dispatches that do next to nothing.
fn many(device: &dyn Device) -> Arc<plimsoll::Plan> {
    let mut g = Graph::new(Mode::Train);
    let mut x = g.input("x", &[2, 2], DType::F32).expect("fine");
    for _ in 0..DISPATCHES {
        x = g.permute(x, &[1, 0]).expect("fine");
    }
    let state = Leaf::State(Init::Zeros, Class::State);
    let leaf = g.leaf("out", TensorType::f32([2, 2]), state).expect("fine");
    g.assign(leaf, x).expect("fine");
    let part = finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new()).expect("finishes");
    let layout = Layout::new(&[part], &device.description().capabilities).expect("lays out");
    Arc::new(place::place(layout, device.description()).expect("is placed"))
}

fn dispatch(c: &mut Criterion) {
    let mut group = c.benchmark_group(format!("encode and submit {DISPATCHES} dispatches"));
    group.sample_size(20);
    for id in gpus() {
        let device = plimsoll::devices::open(&id).expect("opens");
        let plan = many(&*device);
        let ledger = Ledger::new(plan.peak_bytes);
        let mut executor = device.load(&plan, &ledger).expect("loads");
        let input = plan.parts[0].inputs[0].1.storage;
        group.bench_function(&device.description().name, |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    let start = Instant::now();
                    executor.run(0, &[(input, &[0; 16])]).expect("runs");
                    total += start.elapsed();
                    executor.synchronize().expect("runs");
                }
                total
            });
        });
    }
    group.finish();
}

criterion_group!(benches, dispatch, start);
criterion_main!(benches);
