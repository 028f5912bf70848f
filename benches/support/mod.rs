//! What benchmarks of single ops on the cpu backend share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use plimsoll::graph::Leaf;
use plimsoll::ledger::{Class, Ledger};
use plimsoll::ops::ValueId;
use plimsoll::planner::liveness::Layout;
use plimsoll::planner::{PartKind, place};
use plimsoll::program::finish;
use plimsoll::{Device, Graph, Init, Mode};

/// Runs at least, and seconds that all take at least.
const RUNS: usize = 5;
const SECONDS: f64 = 0.3;

/// Fastest of some runs of a graph that computes `outputs`, in seconds.
pub fn seconds(mut g: Graph, outputs: &[ValueId]) -> f64 {
    for (i, y) in outputs.iter().enumerate() {
        let tensor = g.value(*y).tensor.clone();
        let leaf = Leaf::State(Init::Zeros, Class::State);
        let leaf = g.leaf(&format!("out.{i}"), tensor, leaf).expect("fine");
        g.assign(leaf, *y).expect("fine");
    }
    let device = plimsoll_cpu::CpuDevice::new().expect("opens");
    let part = finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new()).expect("finishes");
    let layout = Layout::new(&[part], &device.description().capabilities).expect("lays out");
    let plan = Arc::new(place::place(layout, device.description()).expect("is placed"));
    let mut executor = device.load(&plan, &Ledger::new(plan.peak_bytes)).expect("loads");
    for (name, leaf) in &plan.leaves {
        let words = leaf.init.words(name, 7, leaf.operand.tensor.numel());
        executor.write(leaf.operand.storage, 0, bytemuck::cast_slice(&words)).expect("fits");
    }
    let mut best = f64::INFINITY;
    let (begin, mut runs) = (Instant::now(), 0);
    while runs < RUNS || begin.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        executor.run(0, &[]).expect("runs");
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// A tensor of normal numbers.
pub fn tensor(g: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    g.parameter(name, shape, Init::Normal(0.05)).expect("fine")
}

/// Seconds of a plain product.
pub fn product(a: &[usize], b: &[usize], ta: bool, tb: bool) -> f64 {
    let mut g = Graph::new(Mode::Train);
    let (a, b) = (tensor(&mut g, "a", a), tensor(&mut g, "b", b));
    let y = g.matmul(a, b, ta, tb).expect("fine");
    seconds(g, &[y])
}
