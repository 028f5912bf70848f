//! Random models: every list of steps is a valid one.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll::expression::E;
use plimsoll::graph::{Loss, Model};
use plimsoll::ledger::Ledger;
use plimsoll::ops::{CrossEntropy, ValueId};
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::{
    Batch, DType, Device, DeviceDescription, Graph, Init, Plan, PlanRequest, Result, Trainer, plan,
};
use proptest::prelude::*;

use super::AMPLE;

/// An op and what it is applied to; the numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    op: u8,
    a: u8,
    b: u8,
    size: u8,
}

/// A directed acyclic graph of ops over a batch, whose items do not mix.
#[derive(Clone, Debug)]
pub struct RandomModel {
    /// Sizes of an item of the input `x`.
    pub item: [usize; 2],
    /// Indices an item, for embeddings.
    pub indices: usize,
    /// The ops.
    pub steps: Vec<Step>,
    /// Whether the loss is a cross-entropy with `labels`, or a mean.
    pub classify: bool,
}

/// Rows of every embedding's table.
const ROWS: usize = 7;
/// Classes of every cross-entropy.
const CLASSES: usize = 3;
/// Most elements an item of any value.
const LARGEST: usize = 512;

/// Any model of up to this many steps.
pub fn models(most_steps: usize) -> impl Strategy<Value = RandomModel> {
    let step = any::<(u8, u8, u8, u8)>().prop_map(|(op, a, b, size)| Step { op, a, b, size });
    let item = prop::array::uniform2(1usize..12);
    (item, 1usize..5, prop::collection::vec(step, 1..most_steps), any::<bool>())
        .prop_map(|(item, indices, steps, classify)| RandomModel { item, indices, steps, classify })
}

/// A model under construction. Every value has the batch as its first
/// dimension.
struct Tracer<'a> {
    g: &'a mut Graph,
    batch: usize,
    values: Vec<ValueId>,
    used: Vec<bool>,
}

impl Model for RandomModel {
    fn name(&self) -> &str {
        "random"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let x = g.input("x", &[batch, self.item[0], self.item[1]], DType::F32)?;
        let indices = g.input("indices", &[batch, self.indices], DType::I32)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        let mut t = Tracer { g, batch, values: vec![x], used: vec![false] };
        for step in &self.steps {
            for value in t.apply(*step, indices)? {
                if t.item(value).iter().product::<usize>() <= LARGEST {
                    t.values.push(value);
                    t.used.push(false);
                }
            }
        }
        // What nobody uses, and the last value, make the loss.
        let ends: Vec<ValueId> =
            t.values.iter().zip(&t.used).filter(|(_, used)| !**used).map(|(v, _)| *v).collect();
        let mut means = Vec::new();
        for end in ends {
            let flat = t.flat(end)?;
            means.push(t.g.mean(flat, &[1])?);
        }
        let mut sum = means[0];
        for mean in &means[1..] {
            sum = t.g.map(&[sum, *mean], |x| &x[0] + &x[1])?;
        }
        if self.classify {
            let column = t.g.reshape(sum, &[batch, 1])?;
            let weight = t.weight(1, CLASSES)?;
            let logits = t.g.matmul(column, weight, false, false)?;
            return t.g.cross_entropy(logits, labels, CrossEntropy::default());
        }
        let weight = t.g.map(&[labels], |x| x[0].equal(E::i32(0)).select(0.5, 1.0))?;
        Ok(Loss { per_item: sum, weight, correct: None })
    }
}

impl Tracer<'_> {
    fn item(&self, value: ValueId) -> Vec<usize> {
        self.g.shape(value)[1..].to_vec()
    }

    /// A value by any number; it counts as used.
    fn pick(&mut self, number: u8) -> ValueId {
        // Counted from the end, so that small numbers make chains.
        let place = self.values.len() - 1 - usize::from(number) % self.values.len();
        self.used[place] = true;
        self.values[place]
    }

    fn weight(&mut self, rows: usize, columns: usize) -> Result<ValueId> {
        // The same sizes give the same weight: shared parameters.
        let bound = 1.0 / (rows as f32).sqrt();
        let name = format!("weight.{rows}x{columns}");
        self.g.parameter(&name, &[rows, columns], Init::Uniform(bound))
    }

    fn flat(&mut self, value: ValueId) -> Result<ValueId> {
        let count = self.item(value).iter().product();
        self.g.reshape(value, &[self.batch, count])
    }

    /// Two values of one shape: `b` becomes a column where its shape differs.
    fn alike(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        if self.g.shape(a) == self.g.shape(b) {
            return Ok(b);
        }
        let flat = self.flat(b)?;
        let mean = self.g.mean(flat, &[1])?;
        let mut shape = vec![1; self.g.shape(a).len()];
        shape[0] = self.batch;
        self.g.reshape(mean, &shape)
    }

    fn apply(&mut self, step: Step, indices: ValueId) -> Result<Vec<ValueId>> {
        let a = self.pick(step.a);
        let item = self.item(a);
        let rank = item.len();
        let size = 1 + usize::from(step.size) % 9;
        // Dimension of the tensor; the batch is dimension 0.
        let axis = 1 + usize::from(step.size) % rank;
        let one = match step.op % 18 {
            0 => self.g.relu(a)?,
            1 => self.g.map(&[a], |x| x[0].tanh())?,
            2 => return self.g.map_many(&[a], |x| vec![&x[0] * 0.5, x[0].max(0.1)]),
            3 => {
                let b = self.pick(step.b);
                let b = self.alike(a, b)?;
                self.g.map(&[a, b], |x| &x[0] * 0.5 + &x[1] * 0.5)?
            }
            4 => {
                let b = self.pick(step.b);
                let b = self.alike(a, b)?;
                self.g.map(&[a, b], |x| &x[0] * x[1].tanh())?
            }
            5 => {
                let flat = self.flat(a)?;
                let weight = self.weight(item.iter().product(), size)?;
                self.g.matmul(flat, weight, false, false)?
            }
            6 => {
                let weight = self.weight(size, item[rank - 1])?;
                self.g.matmul(a, weight, false, true)?
            }
            7 if rank == 2 => self.g.matmul(a, a, false, true)?,
            8 if rank > 1 => self.g.mean(a, &[axis])?,
            9 if rank > 1 => self.g.max(a, &[axis])?,
            10 if rank > 1 => {
                let mut order: Vec<usize> = (0..=rank).collect();
                order[1..].rotate_left(1);
                self.g.permute(a, &order)?
            }
            11 => {
                let b = self.pick(step.b);
                let b = if self.g.shape(a) == self.g.shape(b) { b } else { a };
                self.g.concat(&[a, b], axis)?
            }
            12 => {
                let mut ends = self.g.shape(a).to_vec();
                let starts: Vec<usize> =
                    (0..=rank).map(|d| if d == axis { ends[d] / 3 } else { 0 }).collect();
                ends[axis] -= ends[axis] / 4;
                self.g.slice(a, &starts, &ends)?
            }
            13 => {
                let around: Vec<usize> = (0..=rank).map(|d| usize::from(d == axis)).collect();
                self.g.pad(a, &around, &around)?
            }
            14 => {
                let table = self.weight(ROWS, size)?;
                self.g.embedding(table, indices)?
            }
            15 => {
                let bias = self.weight(1, item[rank - 1])?;
                self.g.map(&[a, bias], |x| &x[0] + &x[1])?
            }
            16 => self.g.dropout(a, 0.25, self.batch)?,
            _ => self.flat(a)?,
        };
        Ok(vec![one])
    }
}

/// What is planned, drawn at random.
#[derive(Clone, Debug)]
pub struct Task {
    model: RandomModel,
    batch: usize,
    micro_batches: usize,
    evaluate_items: Option<usize>,
    optimizer: u8,
}

/// Any task with a model of up to this many steps.
pub fn tasks(most_steps: usize) -> impl Strategy<Value = Task> {
    (models(most_steps), 1usize..9, any::<u8>(), prop::option::of(1usize..12), 0u8..4).prop_map(
        |(model, batch, k, evaluate_items, optimizer)| Task {
            micro_batches: 1 + usize::from(k) % batch,
            model,
            batch,
            evaluate_items,
            optimizer,
        },
    )
}

impl Task {
    fn recipe(&self) -> Recipe {
        match self.optimizer {
            0 => Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }.into(),
            1 => Sgd::default().into(),
            2 => Recipe::from(Adam::adamw()).clip_norm(0.5).without_decay_on_vectors(),
            _ => Adam::adamw().into(),
        }
    }

    /// Plans it without a limit.
    pub fn plan(&self, device: &DeviceDescription) -> Result<Plan> {
        self.plan_within(AMPLE, device)
    }

    /// Plans it within a budget.
    pub fn plan_within(&self, budget_bytes: u64, device: &DeviceDescription) -> Result<Plan> {
        let recipe = self.recipe();
        let request = PlanRequest {
            evaluate_items: self.evaluate_items,
            micro_batches: Some(self.micro_batches),
            ..PlanRequest::new(&self.model, &recipe, self.batch, budget_bytes)
        };
        plan(&request, device)
    }

    /// Trains two steps and evaluates; the bits of everything that persists.
    pub fn run(&self, plan: &Arc<Plan>, device: &dyn Device) -> BTreeMap<String, Vec<u8>> {
        let ledger = Ledger::new(plan.peak_bytes);
        let mut t = Trainer::load(Arc::clone(plan), self.recipe(), device, ledger, 7)
            .expect("the plan loads");
        let items = self.batch.max(self.evaluate_items.unwrap_or(0));
        let item: usize = self.model.item.iter().product();
        let x: Vec<f32> = (0..items * item).map(|i| (i as f32 * 0.61).sin()).collect();
        let integers = |count: usize, below: usize| -> Vec<i32> {
            (0..count).map(|i| (i * i * 5 % below) as i32).collect()
        };
        let (indices, labels) =
            (integers(items * self.model.indices, ROWS), integers(items, CLASSES));
        let first = |items: usize| {
            Batch::from([
                ("x", bytemuck::cast_slice(&x[..items * item])),
                ("indices", bytemuck::cast_slice(&indices[..items * self.model.indices])),
                ("labels", bytemuck::cast_slice(&labels[..items])),
            ])
        };
        for _ in 0..2 {
            t.train_step(&first(self.batch), 1e-2).expect("a step runs");
        }
        if let Some(items) = self.evaluate_items {
            t.evaluate(&first(items), items).expect("evaluates");
        }
        let names: Vec<String> = t.plan().leaves.keys().cloned().collect();
        names
            .into_iter()
            .map(|n| {
                let b = t.read(&n).expect("is read").1;
                (n, b)
            })
            .collect()
    }
}
