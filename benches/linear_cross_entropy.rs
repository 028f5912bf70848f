//! `linear_cross_entropy` with its gradient on the cpu backend, against the four
//! plain products that it is made of. `cargo bench --bench linear_cross_entropy`.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use plimsoll::graph::Leaf;
use plimsoll::ledger::{Class, Ledger};
use plimsoll::ops::{CrossEntropy, TensorType, ValueId};
use plimsoll::planner::liveness::Layout;
use plimsoll::planner::{PartKind, search};
use plimsoll::program::finish;
use plimsoll::{DType, Device, Graph, Init, Mode, autodiff};

const RUNS: usize = 5;

/// Fastest of some runs of a graph, in seconds.
fn seconds(mut g: Graph, outputs: &[ValueId]) -> f64 {
    for (i, y) in outputs.iter().enumerate() {
        let tensor = g.value(*y).tensor.clone();
        let leaf = Leaf::State(Init::Zeros, Class::State);
        let leaf = g.leaf(&format!("out.{i}"), tensor, leaf).expect("fine");
        g.assign(leaf, *y).expect("fine");
    }
    let device = plimsoll_cpu::CpuDevice::new().expect("opens");
    let part = finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new()).expect("finishes");
    let layout = Layout::new(&[part], &device.description().capabilities).expect("lays out");
    let plan = Arc::new(search::place(layout, device.description()).expect("is placed"));
    let mut executor = device.load(&plan, &Ledger::new(plan.peak_bytes)).expect("loads");
    for (name, leaf) in &plan.leaves {
        let words = leaf.init.words(name, 7, leaf.operand.tensor.numel());
        executor.write(leaf.operand.storage, 0, bytemuck::cast_slice(&words)).expect("fits");
    }
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        executor.run(0, &[]).expect("runs");
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn weight(g: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    g.parameter(name, shape, Init::Normal(0.05)).expect("fine")
}

fn product(a: &[usize], b: &[usize], ta: bool, tb: bool) -> f64 {
    let mut g = Graph::new(Mode::Train);
    let (a, b) = (weight(&mut g, "a", a), weight(&mut g, "b", b));
    let y = g.matmul(a, b, ta, tb).expect("fine");
    seconds(g, &[y])
}

fn main() {
    for [rows, classes, width] in [[1024, 50_257, 768], [512, 10_007, 256]] {
        let logits = product(&[rows, width], &[classes, width], false, true);
        let hidden = product(&[rows, classes], &[classes, width], false, false);
        let columns = product(&[rows, classes], &[rows, width], true, false);
        let products = 2.0 * logits + hidden + columns;
        let mut g = Graph::new(Mode::Train);
        let (h, w) = (weight(&mut g, "h", &[rows, width]), weight(&mut g, "w", &[classes, width]));
        let labels = TensorType::new([rows], DType::I32);
        let state = Leaf::State(Init::Zeros, Class::State);
        let labels = g.leaf("labels", labels, state).expect("fine");
        let loss =
            g.linear_cross_entropy(h, w, None, labels, CrossEntropy::default()).expect("fine");
        let seeds = [(loss.per_item, loss.weight)];
        let gradients = autodiff::backward(&mut g, &seeds, &[h, w]).expect("fine");
        let gradients: Vec<ValueId> = gradients.into_iter().flatten().collect();
        let all = seconds(g, &gradients);
        let rate = 8.0 * (rows * classes * width) as f64 / all / 1e9;
        println!(
            "{rows} x {classes} x {width}: {:.1} ms, four products {:.1} ms ({:.1} + {:.1} + {:.1} + {:.1}), ratio {:.3}, {rate:.1} GFLOP/s",
            all * 1e3,
            products * 1e3,
            logits * 1e3,
            logits * 1e3,
            hidden * 1e3,
            columns * 1e3,
            all / products,
        );
    }
}
