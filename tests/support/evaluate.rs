//! Evaluates a piece of graph on a device, forward and backward, through the
//! same lowering, planning and checking that a training step goes through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll::graph::{Init, Leaf};
use plimsoll::ledger::{Class, Ledger};
use plimsoll::ops::{TensorType, ValueId};
use plimsoll::optimizers::Sgd;
use plimsoll::planner::liveness::Layout;
use plimsoll::planner::place::place;
use plimsoll::planner::{MicroBatch, PartKind, verify::verify};
use plimsoll::{Batch, DType, Device, Graph, Mode, Result, Trainer, autodiff, program};

/// A tensor given to a graph.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The leaf's name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// f32 or i32.
    pub dtype: DType,
    /// Its elements' bits.
    pub words: Vec<u32>,
}

impl Tensor {
    /// Its elements as floats.
    pub fn floats(&self) -> Vec<f32> {
        assert_eq!(self.dtype, DType::F32, "{}", self.name);
        self.words.iter().map(|w| f32::from_bits(*w)).collect()
    }

    /// Its elements as bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}

/// How float tensors enter the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// As weights, whose memory is never reused.
    Parameters,
    /// As inputs, whose memory ops may compute in.
    Inputs,
}

/// Values of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// Each output.
    pub outputs: Vec<Vec<f32>>,
    /// The gradient of each given tensor (`None`: no influence).
    pub gradients: Vec<Option<Vec<f32>>>,
}

/// Computes the outputs of `f` and, with upstream gradients of its first
/// outputs, the gradients of `tensors`. What no kernel writes comes back NaN.
pub fn evaluate(
    device: &dyn Device,
    tensors: &[Tensor],
    given: Given,
    upstream: &[&[f32]],
    f: impl FnOnce(&mut Graph, &[ValueId]) -> Result<Vec<ValueId>>,
) -> Result<Evaluated> {
    let mut g = Graph::new(Mode::Train);
    let mut batch = Batch::new();
    let mut ids = Vec::new();
    for t in tensors {
        let leaf = if t.dtype == DType::F32 && given == Given::Parameters {
            Leaf::Parameter(Init::Words(t.words.clone()))
        } else {
            batch.insert(&t.name, t.bytes());
            Leaf::Input
        };
        ids.push(g.leaf(&t.name, TensorType::new(t.shape.clone(), t.dtype), leaf)?);
    }
    let outputs = f(&mut g, &ids)?;
    let names: Vec<String> = (0..upstream.len()).map(|j| format!("upstream.{j}")).collect();
    let mut seeds = Vec::new();
    for ((output, gradient), name) in outputs.iter().zip(upstream).zip(&names) {
        let tensor = g.value(*output).tensor.clone();
        seeds.push((*output, g.leaf(name, tensor, Leaf::Input)?));
        batch.insert(name, bytemuck::cast_slice(gradient));
    }
    let gradients = autodiff::backward(&mut g, &seeds, &ids)?;
    let mut store = |name: String, value: ValueId| -> Result<String> {
        let nan = Leaf::State(Init::Constant(f32::NAN), Class::State);
        let tensor = g.value(value).tensor.clone();
        let leaf = g.leaf(&name, tensor, nan)?;
        g.assign(leaf, value)?;
        Ok(name)
    };
    let mut stored_outputs = Vec::new();
    for (j, y) in outputs.iter().enumerate() {
        stored_outputs.push(store(format!("output.{j}"), *y)?);
    }
    let mut stored_gradients = Vec::new();
    for (k, gradient) in gradients.iter().enumerate() {
        stored_gradients.push(match gradient {
            Some(value) => Some(store(format!("gradient.{k}"), *value)?),
            None => None,
        });
    }
    let part = program::finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new())?;
    // An upstream gradient that nothing reads is not uploaded; handing it in
    // all the same does no harm.
    let mut plan =
        place(Layout::new(&[part], &device.description().capabilities)?, device.description())?;
    plan.batch = 1;
    plan.micro_batches = vec![MicroBatch { part: 0, first_item: 0, items: 1 }];
    verify(&plan, plan.peak_bytes)?;
    let ledger = Ledger::new(plan.peak_bytes);
    let mut trainer = Trainer::load(Arc::new(plan), Sgd::default().into(), device, ledger, 7)?;
    trainer.train_step(&batch, 0.0)?;
    let mut read = |name: &String| trainer.read_f32(name);
    Ok(Evaluated {
        outputs: stored_outputs.iter().map(&mut read).collect::<Result<_>>()?,
        gradients: stored_gradients
            .iter()
            .map(|name| name.as_ref().map(&mut read).transpose())
            .collect::<Result<_>>()?,
    })
}

/// The learning rate of [`gradients_by_step`]: a power of two so large that
/// the rounding of the weights themselves vanishes beside the gradient's.
const STEP: f32 = 1_048_576.0;

/// The mean gradient of every weight, seen from one step of plain SGD.
pub fn gradients_by_step(trainer: &mut Trainer, batch: &Batch<'_>) -> BTreeMap<String, Vec<f64>> {
    let leaves = trainer.plan().leaves.iter();
    let names: Vec<String> =
        leaves.filter(|(_, l)| l.class == Class::Parameter).map(|(n, _)| n.clone()).collect();
    let read = |trainer: &mut Trainer| -> Vec<Vec<f32>> {
        names.iter().map(|n| trainer.read_f32(n).expect("a weight is read")).collect()
    };
    let before = read(trainer);
    trainer.train_step(batch, STEP).expect("a step runs");
    let after = read(trainer);
    let difference = |(b, a): (&f32, &f32)| (f64::from(*b) - f64::from(*a)) / f64::from(STEP);
    let gradients =
        before.iter().zip(&after).map(|(b, a)| b.iter().zip(a).map(difference).collect());
    names.iter().cloned().zip(gradients).collect()
}
