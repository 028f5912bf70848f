//! What layers and recipes promise beyond the values of their ops: batch norm
//! keeps its books once a step, shared weights have one state, frozen ones
//! neither gradient nor state, and nobody's gradient depends on what else is
//! asked for.

mod support;

use std::collections::BTreeSet;

use plimsoll::graph::{Affine, Running};
use plimsoll::ledger::Class;
use plimsoll::ops::{Attention, CrossEntropy, ValueId};
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::planner::liveness::Layout;
use plimsoll::planner::place::place;
use plimsoll::planner::{MicroBatch, PartKind};
use plimsoll::{
    Batch, DType, Device, Error, Graph, Init, Loss, Model, NullDevice, PlanRequest, Result,
    Trainer, autodiff, nn, plan, program,
};
use support::error::{bound, check, functions};
use support::evaluate::{Given, Tensor, evaluate};
use support::{AMPLE, devices};

fn sgd() -> Recipe {
    Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }.into()
}

/// Batch norm of the inputs; the loss is of no matter.
struct Normed;

const CHANNELS: usize = 3;
const POSITIONS: usize = 5;

impl Model for Normed {
    fn name(&self) -> &str {
        "normed"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let x = g.input("x", &[batch, CHANNELS, POSITIONS], DType::F32)?;
        let running = Running {
            mean: g.state("mean", &[CHANNELS], Init::Zeros)?,
            variance: g.state("variance", &[CHANNELS], Init::Constant(1.0))?,
            momentum: 0.1,
        };
        let weight = g.parameter("weight", &[CHANNELS], Init::Constant(1.0))?;
        let affine = Affine { weight: Some(weight), bias: None };
        let y = g.batch_norm(x, affine, running, 1e-5)?;
        let square = g.map(&[y], |y| &y[0] * &y[0])?;
        let loss = g.mean(square, &[1, 2])?;
        g.unweighted(loss)
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| 1.0 + (i as f32 * 0.37).sin()).collect()
}

/// Mean and unbiased variance of each channel of [items, channels, positions].
fn moments(x: &[f32], items: usize) -> (Vec<f64>, Vec<f64>) {
    let n = (items * POSITIONS) as f64;
    (0..CHANNELS)
        .map(|c| {
            let of = |f: &dyn Fn(f64) -> f64| -> f64 {
                let places = (0..items * CHANNELS).filter(|r| r % CHANNELS == c);
                places.flat_map(|r| &x[r * POSITIONS..][..POSITIONS]).map(|x| f((*x).into())).sum()
            };
            let mean = of(&|x| x) / n;
            (mean, of(&|x| (x - mean).powi(2)) / (n - 1.0))
        })
        .unzip()
}

/// Running statistics start at mean 0: momentum 0.1 gives 0.1 µ after a step,
/// and 0.19 µ after two of the same batch, split or not.
#[test]
fn running_statistics_are_updated_once_a_step() {
    const ITEMS: usize = 8;
    let x = values(ITEMS * CHANNELS * POSITIONS);
    let batch = Batch::from([("x", bytemuck::cast_slice(&x))]);
    for device in devices() {
        for k in [1, 3] {
            let recipe = sgd();
            let mut request = PlanRequest::new(&Normed, &recipe, ITEMS, AMPLE);
            request.micro_batches = Some(k);
            request.split_batch_statistics = true;
            let mut t = Trainer::new(&request, &*device, 7).expect("plans");
            // Each micro-batch's own statistics, weighted by its items.
            let (mut mean, mut variance) = (vec![0.0; CHANNELS], vec![0.0; CHANNELS]);
            for m in &t.plan().micro_batches {
                let item = CHANNELS * POSITIONS;
                let own = moments(&x[m.first_item * item..][..m.items * item], m.items);
                let share = m.items as f64 / ITEMS as f64;
                for c in 0..CHANNELS {
                    mean[c] += share * own.0[c];
                    variance[c] += share * own.1[c];
                }
            }
            for (step, taken) in [(1, 0.1), (2, 0.19)] {
                t.train_step(&batch, 0.0).expect("a step runs");
                let label = format!("{}, {k}, step {step}", device.description().name);
                let close = functions(4.0) + bound(ITEMS * POSITIONS);
                let expected: Vec<f64> = mean.iter().map(|m| taken * m).collect();
                check(&label, &t.read_f32("mean").expect("is read"), &expected, close);
                let expected: Vec<f64> =
                    variance.iter().map(|v| taken * v + (1.0 - taken)).collect();
                check(&label, &t.read_f32("variance").expect("is read"), &expected, close);
            }
        }
    }
}

#[test]
fn batch_statistics_are_not_split_unasked() {
    let device = NullDevice::new(1 << 40);
    let recipe = sgd();
    let mut request = PlanRequest::new(&Normed, &recipe, 64, AMPLE);
    let ample = plan(&request, device.description()).expect("plans");
    assert_eq!(ample.micro_batches.len(), 1);
    request.budget_bytes = ample.peak_bytes - 1;
    match plan(&request, device.description()) {
        Err(Error::OverBudget(over)) => {
            assert_eq!(over.minimum_bytes, ample.peak_bytes);
            assert!(over.forbidden[0].contains("batch statistics"), "{:?}", over.forbidden);
        }
        other => panic!("{:?}", other.map(|p| p.micro_batches.len())),
    }
    request.micro_batches = Some(2);
    let refused = plan(&request, device.description());
    assert!(matches!(refused, Err(Error::Setting { name: "micro-batches", .. })));
    request.micro_batches = None;
    request.split_batch_statistics = true;
    assert!(plan(&request, device.description()).expect("plans").micro_batches.len() > 1);
}

/// An embedding whose table is also the output projection, around a layer.
struct Tied;

impl Model for Tied {
    fn name(&self) -> &str {
        "tied"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let tokens = g.input("tokens", &[batch], DType::I32)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        let table = g.parameter("table", &[11, 6], Init::Normal(0.5))?;
        let x = g.embedding(table, tokens)?;
        let x = nn::linear(g, "body", x, 6)?;
        let x = g.gelu(x)?;
        let again = g.parameter("table", &[11, 6], Init::Normal(0.5))?;
        assert_eq!(table, again, "one name, one weight");
        let logits = g.matmul(x, again, false, true)?;
        g.cross_entropy(logits, labels, CrossEntropy::default())
    }
}

const TOKENS: [i32; 4] = [1, 4, 4, 10];
const LABELS: [i32; 4] = [0, 1, 9, 3];

fn tied_batch() -> Batch<'static> {
    Batch::from([
        ("tokens", bytemuck::cast_slice(&TOKENS)),
        ("labels", bytemuck::cast_slice(&LABELS)),
    ])
}

#[test]
fn a_shared_weight_has_one_state_and_the_summed_gradient() {
    let device = NullDevice::new(1 << 40);
    let recipe = Recipe::from(Adam::adamw());
    let planned = plan(&PlanRequest::new(&Tied, &recipe, 4, AMPLE), device.description());
    let leaves = planned.expect("plans").leaves;
    let states: Vec<&String> = leaves.keys().filter(|n| n.starts_with("table")).collect();
    assert_eq!(states, ["table", "table.moment1", "table.moment2"]);

    // Against two weights with the same values, whose gradients are added up.
    struct Apart;
    impl Model for Apart {
        fn name(&self) -> &str {
            "apart"
        }
        fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
            let tokens = g.input("tokens", &[batch], DType::I32)?;
            let labels = g.input("labels", &[batch], DType::I32)?;
            let table = g.parameter("table", &[11, 6], Init::Zeros)?;
            let x = g.embedding(table, tokens)?;
            let x = nn::linear(g, "body", x, 6)?;
            let x = g.gelu(x)?;
            let head = g.parameter("head", &[11, 6], Init::Zeros)?;
            let logits = g.matmul(x, head, false, true)?;
            g.cross_entropy(logits, labels, CrossEntropy::default())
        }
    }
    for device in devices() {
        let recipe = sgd();
        let new = |model: &dyn Model| {
            Trainer::new(&PlanRequest::new(model, &recipe, 4, AMPLE), &*device, 7).expect("plans")
        };
        let (mut tied, mut apart) = (new(&Tied), new(&Apart));
        let table = tied.read("table").expect("is read").1;
        let before: Vec<f32> = tied.read_f32("table").expect("is read");
        ["table", "head"].iter().for_each(|n| apart.write(n, &table).expect("is written"));
        tied.train_step(&tied_batch(), 1.0).expect("a step runs");
        apart.train_step(&tied_batch(), 1.0).expect("a step runs");
        let change = |after: Vec<f32>| -> Vec<f64> {
            after.iter().zip(&before).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect()
        };
        let tied = change(tied.read_f32("table").expect("is read"));
        let (table, head) = (
            change(apart.read_f32("table").expect("is read")),
            change(apart.read_f32("head").expect("is read")),
        );
        let sum: Vec<f64> = table.iter().zip(&head).map(|(a, b)| a + b).collect();
        check(&device.description().name, &tied, &sum, bound(16));
    }
}

#[test]
fn frozen_weights_have_neither_gradient_nor_state_and_stay() {
    let device = NullDevice::new(1 << 40);
    let free = Recipe::from(Adam::adamw());
    let frozen = free.clone().freeze("body.*");
    let bytes = |recipe: &Recipe, class: Class| {
        let request = PlanRequest::new(&Tied, recipe, 4, AMPLE);
        let plan = plan(&request, device.description()).expect("plans");
        plan.storages.iter().filter(|s| s.class == class).map(|s| s.bytes).sum::<u64>()
    };
    let body = (6 * 6 + 6) * 4;
    assert_eq!(bytes(&free, Class::Parameter), bytes(&frozen, Class::Parameter));
    assert_eq!(
        bytes(&free, Class::OptimizerState) - bytes(&frozen, Class::OptimizerState),
        2 * body
    );
    for device in devices() {
        for k in [1, 2] {
            let mut request = PlanRequest::new(&Tied, &frozen, 4, AMPLE);
            request.micro_batches = Some(k);
            let mut t = Trainer::new(&request, &*device, 7).expect("plans");
            let labels: BTreeSet<&str> =
                t.plan().parts.iter().flat_map(|p| &p.nodes).map(|n| n.label.as_str()).collect();
            assert!(!labels.iter().any(|l| l.starts_with("body.weight")), "{labels:?}");
            let read = |t: &mut Trainer, n: &str| t.read_f32(n).expect("is read");
            let before = ["body.weight", "body.bias", "table"].map(|n| read(&mut t, n));
            t.train_step(&tied_batch(), 0.1).expect("a step runs");
            let after = ["body.weight", "body.bias", "table"].map(|n| read(&mut t, n));
            assert!(before[..2] == after[..2], "frozen weights moved");
            assert!(before[2] != after[2], "the others did not");
        }
    }
}

/// Gradients of `asked` of a small net's leaves, by name.
fn gradients(device: &dyn Device, asked: &[&str]) -> Vec<(String, Vec<f32>)> {
    let mut g = Graph::new(plimsoll::Mode::Train);
    let x = g.input("x", &[5, 7], DType::F32).expect("fine");
    let labels = g.input("labels", &[5], DType::I32).expect("fine");
    let h = nn::linear(&mut g, "a", x, 9).expect("fine");
    let h = g.gelu(h).expect("fine");
    let h = nn::linear(&mut g, "b", h, 4).expect("fine");
    let loss = g.cross_entropy(h, labels, CrossEntropy::default()).expect("fine");
    let wanted: Vec<ValueId> = asked.iter().map(|n| g.leaves()[*n]).collect();
    let made = autodiff::backward(&mut g, &[(loss.per_item, loss.weight)], &wanted);
    for (name, value) in asked.iter().zip(made.expect("differentiates")) {
        let value = value.expect("has influence");
        let tensor = g.value(value).tensor.clone();
        let leaf = plimsoll::graph::Leaf::State(Init::Zeros, Class::State);
        let leaf = g.leaf(&format!("of {name}"), tensor, leaf).expect("is new");
        g.assign(leaf, value).expect("fits");
    }
    let part = program::finish(&g, PartKind::Micro { items: 5 }, &BTreeSet::new());
    let layout = Layout::new(&[part.expect("finishes")], &device.description().capabilities);
    let mut plan = place(layout.expect("fits"), device.description()).expect("fits");
    plan.batch = 5;
    plan.micro_batches = vec![MicroBatch { part: 0, first_item: 0, items: 5 }];
    let ledger = plimsoll::ledger::Ledger::new(plan.peak_bytes);
    let mut t = Trainer::load(plan.into(), sgd(), device, ledger, 7).expect("loads");
    let (x, labels) = (values(35), [0i32, 3, 1, 1, 2]);
    let batch =
        Batch::from([("x", bytemuck::cast_slice(&x)), ("labels", bytemuck::cast_slice(&labels))]);
    t.train_step(&batch, 0.0).expect("runs");
    asked
        .iter()
        .map(|n| (n.to_string(), t.read_f32(&format!("of {n}")).expect("is read")))
        .collect()
}

#[test]
fn a_gradient_has_the_same_bits_whatever_else_is_asked_for() {
    for device in devices() {
        let all = gradients(&*device, &["a.weight", "a.bias", "b.weight", "b.bias", "x"]);
        for asked in [&["a.weight"][..], &["a.bias"], &["b.weight", "a.bias"], &["b.bias", "x"]] {
            for (name, alone) in gradients(&*device, asked) {
                let (_, among) = all.iter().find(|(n, _)| *n == name).expect("asked for");
                let device = &device.description().name;
                assert!(*among == alone, "{device}: {name} depends on what else is asked for");
            }
        }
    }
}

/// Heads too large for the kernels of attention are composed of other ops:
/// with zeros behind what the kernels can hold, both give the same.
#[test]
fn attention_of_large_heads_is_composed() {
    let (batch, length, heads, key_heads, size) = (2, 7, 4, 2, 128);
    let wide = size + 32;
    let mask: Vec<u32> = (0..batch * length).map(|i| u32::from(i >= length && i != 9)).collect();
    for device in devices() {
        let outputs = [size, wide].map(|width| {
            let tensor = |name: &str, heads: usize| {
                let value = |i: usize| match i % width < size {
                    // Numbers of a place, whatever the width.
                    true => ((i / width * 31 + i % width * 7) as f32 * 0.37).sin(),
                    false => 0.0,
                };
                let words = (0..batch * length * heads * width).map(|i| value(i).to_bits());
                let shape = vec![batch, length, heads, width];
                Tensor { name: name.into(), shape, dtype: DType::F32, words: words.collect() }
            };
            let mask = Tensor {
                name: "mask".into(),
                shape: vec![batch, length],
                dtype: DType::I32,
                words: mask.clone(),
            };
            let inputs = [tensor("q", heads), tensor("k", key_heads), tensor("v", key_heads), mask];
            let upstream = tensor("g", heads);
            let floats = upstream.floats();
            let op = Attention::new(size).causal();
            let got = evaluate(&*device, &inputs, Given::Parameters, &[&floats], |g, x| {
                Ok(vec![g.attention(x[0], x[1], x[2], Some(x[3]), op.clone())?])
            });
            let got = got.expect("runs");
            let all = [got.outputs, got.gradients.into_iter().flatten().collect()].concat();
            let cut = |x: Vec<f32>| -> Vec<f32> {
                let kept = x.iter().enumerate().filter(|(i, _)| i % width < size);
                kept.map(|(_, x)| *x).collect()
            };
            all.into_iter().map(cut).collect::<Vec<_>>()
        });
        let [kernels, composed] = outputs;
        assert_eq!(kernels.len(), 4);
        // Sums over the head, the keys and the queries of a group, and
        // exponentials, as in the cases of conformance; both sides err, and the
        // squares add.
        let close = 2.0 * (bound(2 * size + length + 2 * length) + functions(4.0));
        for (a, b) in kernels.iter().zip(&composed) {
            check(&device.description().name, b, a, close);
        }
    }
}
