//! Splitting a batch changes sums by their order alone, on every device.

mod support;

use std::collections::BTreeMap;

use plimsoll::graph::{Loss, Model};
use plimsoll::models::Mlp;
use plimsoll::ops::CrossEntropy;
use plimsoll::optimizers::{Recipe, Sgd};
use plimsoll::{Batch, DType, Device, Graph, Init, Result};
use support::error::{bound, check, functions};
use support::evaluate::gradients_by_step;
use support::{devices, trainer};

const WIDTHS: [usize; 4] = [20, 9, 7, 5];
const BATCH: usize = 10;
const IGNORED: i32 = -100;

/// Terms of the sums on the way to a gradient of the perceptron: forward over
/// every width, back over all but the first, in the softmax over the last, at
/// the end over the batch.
fn chain() -> usize {
    2 * WIDTHS.iter().sum::<usize>() + BATCH
}

fn plain_sgd() -> Recipe {
    Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }.into()
}

/// Bytes without a pattern that a batch or a width could share.
fn images(items: usize) -> Vec<u8> {
    (0..(items * WIDTHS[0]) as u64).map(|i| (i * i * 31 % 251) as u8).collect()
}

fn labels(items: usize) -> Vec<i32> {
    (0..items as i32).map(|i| i * 3 % 5).collect()
}

type Gradients = BTreeMap<String, Vec<f64>>;

/// The mean loss of a step of the perceptron and all gradients.
fn step(device: &dyn Device, model: &Mlp, labels: &[i32], k: usize) -> (f64, Gradients) {
    let images = images(labels.len());
    let batch = Batch::from([("images", &images[..]), ("labels", bytemuck::cast_slice(labels))]);
    let mut t = trainer(model, &plain_sgd(), device, labels.len(), Some(k)).expect("plans");
    assert_eq!(t.plan().micro_batches.len(), k);
    let gradients = gradients_by_step(&mut t, &batch);
    (t.loss().expect("there is one"), gradients)
}

fn compare(label: &str, got: &(f64, Gradients), expected: &(f64, Gradients), bound: f64) {
    check(&format!("{label}: loss"), &[got.0], &[expected.0], bound);
    assert!(got.1.keys().eq(expected.1.keys()), "{label}: other weights");
    for (name, gradient) in &got.1 {
        check(&format!("{label}: gradient of {name}"), gradient, &expected.1[name], bound);
    }
}

#[test]
fn gradients_agree_for_every_count() {
    let model = Mlp::new(&WIDTHS).expect("valid widths");
    let labels = labels(BATCH);
    for device in devices() {
        let whole = step(&*device, &model, &labels, 1);
        // 10 in 3, 4, 7 and 9: uneven tails.
        for k in [2, 3, 4, 7, 9, BATCH] {
            let label = format!("{}, {k} micro-batches", device.description().name);
            let split = step(&*device, &model, &labels, k);
            compare(&label, &split, &whole, bound(chain()));
        }
    }
}

#[test]
fn dropout_does_not_depend_on_the_count() {
    let model = Mlp::new(&WIDTHS).expect("valid widths").with_dropout(0.5);
    let labels = labels(BATCH);
    for device in devices() {
        let whole = step(&*device, &model, &labels, 1);
        for k in [2, 3, 7, BATCH] {
            let label = format!("{}, dropout, {k} micro-batches", device.description().name);
            let split = step(&*device, &model, &labels, k);
            compare(&label, &split, &whole, bound(chain()));
        }
    }
}

/// Each item picks its row of a table of ones, of which dropout leaves some:
/// one step of SGD writes the mask into the table.
struct Masks;

const MASK_WIDTH: usize = 37;
const MASK_ITEMS: usize = 8;

impl Model for Masks {
    fn name(&self) -> &str {
        "masks"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let table = g.parameter("table", &[MASK_ITEMS, MASK_WIDTH], Init::Zeros)?;
        let item = g.input("item", &[batch], DType::I32)?;
        let row = g.embedding(table, item)?;
        let left = g.dropout(row, 0.5, batch)?;
        let per_item = g.sum(left, &[1])?;
        let weight = g.map(&[per_item], |x| x[0].equal(&x[0]).select(1.0, 1.0))?;
        Ok(Loss { per_item, weight, correct: None })
    }
}

/// The table after each of two steps. Every number in them is a small multiple
/// of a power of two, so that nothing is rounded.
fn masks(device: &dyn Device, k: usize) -> [Vec<f32>; 2] {
    let items: Vec<i32> = (0..MASK_ITEMS as i32).collect();
    let batch = Batch::from([("item", bytemuck::cast_slice(&items))]);
    let mut t = trainer(&Masks, &plain_sgd(), device, MASK_ITEMS, Some(k)).expect("plans");
    [(); 2].map(|()| {
        t.train_step(&batch, 1.0).expect("a step runs");
        t.read_f32("table").expect("is read")
    })
}

#[test]
fn masks_are_the_same_bits_whatever_the_count_and_the_device() {
    let devices = devices();
    let expected = masks(&*devices[0], 1);
    let [first, both] = &expected;
    let dropped = first.iter().filter(|x| **x == 0.0).count();
    // 296 draws: 148 ± 4 standard deviations of 8.6.
    assert!((114..=182).contains(&dropped), "{dropped} of 296 are dropped");
    let kept = -2.0 / MASK_ITEMS as f32;
    assert!(first.iter().all(|x| *x == 0.0 || *x == kept), "{first:?}");
    let second: Vec<f32> = both.iter().zip(first).map(|(b, f)| b - f).collect();
    assert_ne!(&second, first, "two steps draw the same");
    let rows: Vec<&[f32]> = first.chunks(MASK_WIDTH).collect();
    assert!(rows.windows(2).all(|w| w[0] != w[1]), "two items draw the same");
    for device in &devices {
        for k in [1, 2, 3, 7, MASK_ITEMS] {
            let name = &device.description().name;
            assert!(masks(&**device, k) == expected, "{name}, {k} micro-batches");
        }
    }
}

/// Softmax regression on tokens, several an item, each with a label.
struct Tokens {
    per_item: usize,
}

const FEATURES: usize = 3;
const CLASSES: usize = 4;

impl Model for Tokens {
    fn name(&self) -> &str {
        "tokens"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let tokens = batch * self.per_item;
        let x = g.input("x", &[tokens, FEATURES], DType::F32)?;
        let labels = g.input("labels", &[tokens], DType::I32)?;
        let weight = g.parameter("weight", &[CLASSES, FEATURES], Init::Uniform(0.5))?;
        let logits = g.matmul(x, weight, false, true)?;
        g.cross_entropy(
            logits,
            labels,
            CrossEntropy { ignore_index: IGNORED, label_smoothing: 0.0 },
        )
    }
}

fn token_features(tokens: usize) -> Vec<f32> {
    (0..tokens * FEATURES).map(|i| (i as f32 * 0.7).sin()).collect()
}

/// Mean loss and gradient over the tokens that count, in float64.
fn token_reference(weight: &[f32], x: &[f32], labels: &[i32]) -> (f64, Vec<f64>) {
    let (mut loss, mut gradient, mut count) = (0.0, vec![0.0; weight.len()], 0.0);
    for (x, label) in x.chunks(FEATURES).zip(labels).filter(|(_, label)| **label != IGNORED) {
        let logit = |w: &[f32]| -> f64 {
            w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        let logits: Vec<f64> = weight.chunks(FEATURES).map(logit).collect();
        let sum: f64 = logits.iter().map(|l| l.exp()).sum();
        loss += sum.ln() - logits[*label as usize];
        count += 1.0;
        for (c, l) in logits.iter().enumerate() {
            let d = l.exp() / sum - f64::from(u8::from(c == *label as usize));
            for (g, x) in gradient[c * FEATURES..].iter_mut().zip(x) {
                *g += d * f64::from(*x);
            }
        }
    }
    gradient.iter_mut().for_each(|g| *g /= count);
    (loss / count, gradient)
}

#[test]
fn tokens_weigh_the_same_wherever_they_are() {
    // Two items of 12 tokens, of which 1 and 9 count.
    let model = Tokens { per_item: 12 };
    let mut labels = vec![IGNORED; 24];
    labels[5] = 2;
    labels[13..22].copy_from_slice(&[0, 1, 2, 3, 0, 1, 2, 3, 1]);
    let x = token_features(labels.len());
    let batch =
        Batch::from([("x", bytemuck::cast_slice(&x)), ("labels", bytemuck::cast_slice(&labels))]);
    for device in devices() {
        for k in [1, 2] {
            let label = format!("{}, {k} micro-batches", device.description().name);
            let mut t = trainer(&model, &plain_sgd(), &*device, 2, Some(k)).expect("plans");
            let weight = t.read_f32("weight").expect("is read");
            let (loss, gradient) = token_reference(&weight, &x, &labels);
            let got = gradients_by_step(&mut t, &batch);
            // Functions in the softmax, and the tokens' sum.
            let close = bound(FEATURES + CLASSES + 10) + functions(8.0);
            check(&label, &[t.loss().expect("there is one")], &[loss], close);
            check(&label, &got["weight"], &gradient, close);
        }
    }
}

/// The weights' bits after a step, and the loss.
fn token_step(device: &dyn Device, x: &[f32], labels: &[i32], k: usize) -> (Vec<u8>, f64) {
    let model = Tokens { per_item: 5 };
    let batch =
        Batch::from([("x", bytemuck::cast_slice(x)), ("labels", bytemuck::cast_slice(labels))]);
    let mut t = trainer(&model, &plain_sgd(), device, labels.len() / 5, Some(k)).expect("plans");
    t.train_step(&batch, 0.5).expect("a step runs");
    (t.read("weight").expect("is read").1, t.loss().expect("there is one"))
}

#[test]
fn an_ignored_micro_batch_changes_nothing() {
    let x = token_features(20);
    let (head, tail) = ([0, 1, IGNORED, 2, 3], [3, 3, 1, IGNORED, 0]);
    let labels = [head, [IGNORED; 5], [IGNORED; 5], tail].concat();
    let kept_x = [&x[..15], &x[45..]].concat();
    let kept = [head, tail].concat();
    for device in devices() {
        let without = token_step(&*device, &kept_x, &kept, 2);
        assert!(without.1 > 0.0);
        let with = token_step(&*device, &x, &labels, 4);
        assert_eq!(with, without, "{}", device.description().name);
    }
}

#[test]
fn nothing_to_learn_leaves_the_weights_alone() {
    let (x, labels) = (token_features(20), [IGNORED; 20]);
    let mut expected = None;
    for device in devices() {
        for k in [1, 2, 3, 4] {
            let name = &device.description().name;
            let model = Tokens { per_item: 5 };
            let start = trainer(&model, &plain_sgd(), &*device, 4, Some(k))
                .and_then(|mut t| t.read("weight"))
                .expect("is read")
                .1;
            let (weight, loss) = token_step(&*device, &x, &labels, k);
            assert_eq!(loss, 0.0, "{name}, {k} micro-batches");
            assert_eq!(weight, start, "{name}, {k} micro-batches");
            // The start does not depend on the device either.
            assert_eq!(expected.get_or_insert(start.clone()), &start, "{name}");
        }
    }
}

#[test]
fn evaluation_does_not_depend_on_the_count() {
    let model = Mlp::new(&WIDTHS).expect("valid widths").with_dropout(0.5);
    let (images, mut labels) = (images(23), labels(23));
    labels[4] = IGNORED;
    let data = Batch::from([("images", &images[..]), ("labels", bytemuck::cast_slice(&labels))]);
    for device in devices() {
        let mut found = Vec::new();
        for k in [1, 3, BATCH] {
            let recipe = plain_sgd();
            let request = plimsoll::PlanRequest {
                evaluate_items: Some(23),
                micro_batches: Some(k),
                ..plimsoll::PlanRequest::new(&model, &recipe, BATCH, support::AMPLE)
            };
            let mut t = plimsoll::Trainer::new(&request, &*device, 7).expect("plans");
            found.push(t.evaluate(&data, 23).expect("evaluates"));
        }
        for e in &found[1..] {
            let name = &device.description().name;
            check(name, &[e.loss], &[found[0].loss], bound(WIDTHS.iter().sum::<usize>() + 23));
            assert_eq!(e.accuracy, found[0].accuracy, "{name}");
        }
    }
}
