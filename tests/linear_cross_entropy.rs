//! The loss of a language model without its logits: the same training as with
//! them, the same bits for any number of threads, and less memory.

mod support;

use plimsoll::graph::{Loss, Model};
use plimsoll::ops::{CrossEntropy, Emit, LinearCrossEntropy, Op};
use plimsoll::optimizers::Sgd;
use plimsoll::{Batch, DType, Device, Graph, Init, Result};
use support::error::{bound, check, functions};
use support::evaluate::gradients_by_step;
use support::{devices, trainer};

const ROWS: usize = 53;
const WIDTH: usize = 19;
const CLASSES: usize = 1013;

/// A layer before the loss, so that its gradient is wanted too. `chunk_rows`
/// is `None` for a product and a cross-entropy of its own.
struct Head {
    chunk_rows: Option<usize>,
}

impl Model for Head {
    fn name(&self) -> &str {
        "head"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let x = g.input("x", &[batch, WIDTH], DType::F32)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        let first = g.parameter("first", &[WIDTH, WIDTH], Init::Normal(0.3))?;
        let weight = g.parameter("weight", &[CLASSES, WIDTH], Init::Normal(0.3))?;
        let bias = g.parameter("bias", &[CLASSES], Init::Normal(0.3))?;
        let hidden = g.matmul(x, first, false, true)?;
        let hidden = g.relu(hidden)?;
        let Some(rows) = self.chunk_rows else {
            let logits = g.matmul(hidden, weight, false, true)?;
            let logits = g.map(&[logits, bias], |x| &x[0] + &x[1])?;
            return g.cross_entropy(logits, labels, CrossEntropy::default());
        };
        let op = LinearCrossEntropy {
            chunk_bytes: (4 * CLASSES * rows) as u64,
            ..LinearCrossEntropy::default()
        };
        let out = g.emit(Op::LinearCrossEntropy(op), &[hidden, weight, labels, bias])?;
        Ok(Loss { per_item: out[0], weight: out[1], correct: Some(out[3]) })
    }
}

/// Loss and mean gradients of one step, and the peak.
fn step(
    device: &dyn Device,
    chunk_rows: Option<usize>,
    micro_batches: usize,
) -> (f64, Vec<(String, Vec<f64>)>, u64) {
    let recipe = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }.into();
    let model = Head { chunk_rows };
    let mut t = trainer(&model, &recipe, device, ROWS, Some(micro_batches)).expect("plans");
    let x: Vec<f32> = (0..ROWS * WIDTH).map(|i| (i as f32 * 0.61).sin()).collect();
    let labels: Vec<i32> =
        (0..ROWS as i32).map(|i| if i % 7 == 3 { -100 } else { i * 577 % 1013 }).collect();
    let batch = Batch::from([
        ("x", bytemuck::cast_slice(&x[..])),
        ("labels", bytemuck::cast_slice(&labels[..])),
    ]);
    let gradients = gradients_by_step(&mut t, &batch).into_iter().collect();
    (t.loss().expect("is there"), gradients, t.plan().peak_bytes)
}

#[test]
fn trains_as_a_product_and_a_cross_entropy_do() {
    for device in devices() {
        let name = &device.description().name;
        let (loss, expected, peak) = step(&*device, None, 1);
        for (chunk_rows, micro_batches) in [(8, 1), (1000, 1), (5, 3)] {
            let (got, gradients, chunked) = step(&*device, Some(chunk_rows), micro_batches);
            // Sums over width, classes and rows.
            let close = bound(WIDTH + CLASSES + ROWS) + functions(16.0);
            check(&format!("{name}, loss"), &[got], &[loss], close);
            for ((parameter, got), (_, expected)) in gradients.iter().zip(&expected) {
                let label = format!("{name}, {parameter}, chunks of {chunk_rows}");
                check(&label, got, expected, close);
            }
            // 8 rows of logits instead of all; but the gradients of hidden and
            // bias, less than 4 rows, live beside that of the weight.
            if chunk_rows == 8 {
                let saved = (4 * CLASSES * (ROWS - 8 - 4)) as u64;
                assert!(chunked + saved <= peak, "{name}: {chunked} and {peak}");
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let run = |device: plimsoll_cpu::CpuDevice| step(&device, Some(8), 1);
    let with = |threads| plimsoll_cpu::CpuDevice::with_threads(threads).expect("starts");
    let one = run(with(1));
    assert!(one.0.is_finite());
    for device in [with(2), with(3), with(5), with(2).poisoned()] {
        assert!(one == run(device));
    }
}
