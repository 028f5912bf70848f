//! The trainer: drives a loaded plan step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::{Device, Executor, OpTime};
use crate::error::{Error, Result};
use crate::graph::RNG;
use crate::ledger::{Ledger, LedgerReport};
use crate::ops::TensorType;
use crate::optimizers::{HYPER, Recipe};
use crate::philox;
use crate::plan::search::{PlanRequest, plan};
use crate::plan::{Part, PartKind, Plan, verify};
use crate::program::{EVALUATION_SUMS, LOSS_SUM, PREDICTION, WEIGHT_SUM};

/// Data of some items: for each input of the model, its rows one after
/// another as bytes.
pub type Batch<'a> = BTreeMap<&'a str, &'a [u8]>;

/// What an evaluation found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Weighted mean loss (0 for zero weight).
    pub loss: f64,
    /// Share of the weight that was right (0 for zero weight).
    pub accuracy: f64,
}

/// A model in training on a device.
pub struct Trainer {
    plan: Arc<Plan>,
    executor: Box<dyn Executor>,
    recipe: Recipe,
    ledger: Ledger,
    seed: u64,
    step: u64,
}

impl Trainer {
    /// Plans, loads and initialises the weights from the seed.
    ///
    /// # Errors
    /// No plan that fits, or a device that fails.
    pub fn new(request: &PlanRequest<'_>, device: &dyn Device, seed: u64) -> Result<Trainer> {
        let plan = Arc::new(plan(request, device.description())?);
        let ledger = Ledger::new(request.budget_bytes);
        Trainer::load(plan, request.recipe.clone(), device, ledger, seed)
    }

    /// Loads a plan under a ledger and initialises the weights from the seed.
    pub fn load(
        plan: Arc<Plan>,
        recipe: Recipe,
        device: &dyn Device,
        ledger: Ledger,
        seed: u64,
    ) -> Result<Trainer> {
        let given = format!("{recipe:?}");
        if !plan.recipe.is_empty() && plan.recipe != given {
            let message = format!("the plan was made for {}, was given {given}", plan.recipe);
            return Err(Error::Setting { name: "recipe", message });
        }
        // Against itself: the ledger holds the line.
        verify::verify(&plan, plan.peak_bytes)?;
        let executor = device.load(&plan, &ledger)?;
        let mut trainer = Trainer { plan, executor, recipe, ledger, seed, step: 0 };
        trainer.initialise()?;
        Ok(trainer)
    }

    fn initialise(&mut self) -> Result<()> {
        for (name, leaf) in &self.plan.leaves {
            let words = (leaf.operand.tensor.bytes() / 4) as usize;
            let words = leaf.init.words(name, self.seed, words);
            self.executor.write(leaf.operand.storage, 0, bytemuck::cast_slice(&words))?;
        }
        self.executor.synchronize()
    }

    /// The plan in use.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// What the ledger has seen.
    pub fn ledger(&self) -> LedgerReport {
        self.ledger.report()
    }

    /// The backend's notes on the loaded plan.
    pub fn notes(&self) -> Vec<String> {
        self.executor.notes()
    }

    /// Runs one training step over a whole batch. Returns when the work is
    /// queued; the batch's data has been taken over by then.
    pub fn train_step(&mut self, batch: &Batch<'_>, learning_rate: f32) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let hyper = self.recipe.optimizer.hyper(self.step + 1, learning_rate);
        let run = |trainer: &mut Trainer, part: usize, first: usize, items: usize| {
            trainer.run_part(part, batch, plan.batch, first, items, &hyper)
        };
        if let Some(begin) = plan.part(PartKind::Begin) {
            run(self, begin, 0, 0)?;
        }
        for m in &plan.micro_batches {
            run(self, m.part, m.first_item, m.items)?;
        }
        if let Some(update) = plan.part(PartKind::Update) {
            run(self, update, 0, 0)?;
        }
        self.step += 1;
        Ok(())
    }

    /// Times every op of a training step's parts (a real step: weights change).
    pub fn profile_step(&mut self, batch: &Batch<'_>, learning_rate: f32) -> Result<Vec<OpTime>> {
        let plan = Arc::clone(&self.plan);
        let hyper = self.recipe.optimizer.hyper(self.step + 1, learning_rate);
        let mut times = Vec::new();
        let begin = plan.part(PartKind::Begin).map(|p| (p, 0, 0));
        let update = plan.part(PartKind::Update).map(|p| (p, 0, 0));
        let micro = plan.micro_batches.iter().map(|m| (m.part, m.first_item, m.items));
        for (part, first, items) in begin.into_iter().chain(micro).chain(update) {
            let small = self.small_inputs(&plan.parts[part], first, &hyper);
            let uploads = uploads(&plan.parts[part], batch, plan.batch, first, items, &small)?;
            times.extend(self.executor.profile(part, &uploads)?);
        }
        self.step += 1;
        Ok(times)
    }

    /// The mean loss of the last step; waits for it.
    pub fn loss(&mut self) -> Result<f64> {
        let (loss, weight) = (self.read_scalar(LOSS_SUM)?, self.read_scalar(WEIGHT_SUM)?);
        Ok(if weight == 0.0 { 0.0 } else { loss / weight })
    }

    /// Items of the batches in which a data set is evaluated, but for the last.
    pub fn evaluation_items(&self) -> Result<usize> {
        self.plan
            .parts
            .iter()
            .filter_map(|p| match p.kind {
                PartKind::Evaluate { items } => Some(items),
                _ => None,
            })
            .max()
            .ok_or_else(|| Error::Setting {
                name: "evaluation items",
                message: "the plan has no evaluation; name the number of items when planning"
                    .into(),
            })
    }

    /// Evaluates a whole data set, given as rows of every input.
    pub fn evaluate(&mut self, data: &Batch<'_>, items: usize) -> Result<Evaluation> {
        self.begin_evaluation()?;
        let full = self.evaluation_items()?;
        let mut first = 0;
        while first < items {
            let now = full.min(items - first);
            self.evaluate_some(data, items, first, now)?;
            first += now;
        }
        self.end_evaluation()
    }

    /// Adds a batch to the evaluation begun: of [`Trainer::evaluation_items`],
    /// or of those left over of the data set planned for.
    pub fn evaluate_batch(&mut self, data: &Batch<'_>, items: usize) -> Result<()> {
        self.evaluate_some(data, items, 0, items)
    }

    /// Items of a prediction.
    pub fn prediction_items(&self) -> Result<usize> {
        self.prediction().map(|(_, items)| items)
    }

    fn prediction(&self) -> Result<(usize, usize)> {
        let kinds = self.plan.parts.iter().map(|p| p.kind).enumerate();
        let items = |(part, kind)| match kind {
            PartKind::Predict { items } => Some((part, items)),
            _ => None,
        };
        kinds.filter_map(items).next().ok_or_else(|| Error::Setting {
            name: "prediction items",
            message: "the plan has no prediction; name the number of items when planning".into(),
        })
    }

    /// What the model says about [`Trainer::prediction_items`] items, given as
    /// rows of every input: the shape of it, and its elements.
    pub fn predict(&mut self, data: &Batch<'_>) -> Result<(Vec<usize>, Vec<f32>)> {
        let (part, items) = self.prediction()?;
        let hyper = [0.0; crate::optimizers::HYPER_WORDS];
        self.run_part(part, data, items, 0, items, &hyper)?;
        let (tensor, bytes) = self.read(PREDICTION)?;
        Ok((tensor.shape, bytemuck::pod_collect_to_vec(&bytes)))
    }

    /// Clears the evaluation's sums.
    pub fn begin_evaluation(&mut self) -> Result<()> {
        for name in EVALUATION_SUMS {
            if let Some(leaf) = self.plan.leaves.get(name) {
                self.executor.write(leaf.operand.storage, 0, &[0; 4])?;
            }
        }
        Ok(())
    }

    fn evaluate_some(
        &mut self,
        data: &Batch<'_>,
        total: usize,
        first: usize,
        items: usize,
    ) -> Result<()> {
        let Some(part) = self.plan.part(PartKind::Evaluate { items }) else {
            let message =
                format!("the plan evaluates no batch of {items} items; plan for this data set");
            return Err(Error::Setting { name: "evaluation items", message });
        };
        self.run_part(part, data, total, first, items, &[0.0; crate::optimizers::HYPER_WORDS])
    }

    /// The mean over all that was evaluated since [`Trainer::begin_evaluation`].
    pub fn end_evaluation(&mut self) -> Result<Evaluation> {
        let loss = self.read_scalar(EVALUATION_SUMS[0])?;
        let weight = self.read_scalar(EVALUATION_SUMS[1])?;
        let correct = match self.plan.leaves.contains_key(EVALUATION_SUMS[2]) {
            true => self.read_scalar(EVALUATION_SUMS[2])?,
            false => 0.0,
        };
        let mean = |x: f64| if weight == 0.0 { 0.0 } else { x / weight };
        Ok(Evaluation { loss: mean(loss), accuracy: mean(correct) })
    }

    /// The content of a persistent leaf (a weight, say) as bytes.
    pub fn read(&mut self, name: &str) -> Result<(TensorType, Vec<u8>)> {
        let leaf = self.leaf(name)?;
        let mut bytes = vec![0; leaf.tensor.bytes() as usize];
        self.executor.read(leaf.storage, 0, &mut bytes)?;
        Ok((leaf.tensor, bytes))
    }

    /// [`Trainer::read`] as floats.
    pub fn read_f32(&mut self, name: &str) -> Result<Vec<f32>> {
        Ok(bytemuck::pod_collect_to_vec(&self.read(name)?.1))
    }

    /// Replaces the content of a persistent leaf.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let leaf = self.leaf(name)?;
        if bytes.len() as u64 != leaf.tensor.bytes() {
            let message = format!("{} bytes given, it has {}", bytes.len(), leaf.tensor.bytes());
            return Err(Error::Input { name: name.to_string(), message });
        }
        self.executor.write(leaf.storage, 0, bytes)
    }

    /// The executor, for tests and tools that look below the trainer.
    pub fn executor(&mut self) -> &mut dyn Executor {
        self.executor.as_mut()
    }

    /// Waits for the device.
    pub fn synchronize(&mut self) -> Result<()> {
        self.executor.synchronize()
    }

    fn leaf(&self, name: &str) -> Result<crate::ops::Operand> {
        self.plan.leaves.get(name).map(|l| l.operand.clone()).ok_or_else(|| Error::Input {
            name: name.to_string(),
            message: "the model has no such tensor".into(),
        })
    }

    fn read_scalar(&mut self, name: &str) -> Result<f64> {
        Ok(f64::from(self.read_f32(name)?[0]))
    }

    fn small_inputs(&self, part: &Part, first: usize, hyper: &[f32]) -> Vec<(String, Vec<u8>)> {
        let [low, high] = philox::key(self.seed);
        part.inputs
            .iter()
            .filter_map(|(name, _)| match name.as_str() {
                RNG => {
                    let words = [low, high, self.step as u32, first as u32];
                    Some((name.clone(), bytemuck::cast_slice(&words).to_vec()))
                }
                HYPER => Some((name.clone(), bytemuck::cast_slice(hyper).to_vec())),
                _ => None,
            })
            .collect()
    }

    fn run_part(
        &mut self,
        part: usize,
        batch: &Batch<'_>,
        total: usize,
        first: usize,
        items: usize,
        hyper: &[f32],
    ) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let small = self.small_inputs(&plan.parts[part], first, hyper);
        let uploads = uploads(&plan.parts[part], batch, total, first, items, &small)?;
        self.executor.run(part, &uploads)
    }
}

/// The rows `first..first + items` of every input of a part.
fn uploads<'a>(
    part: &Part,
    batch: &Batch<'a>,
    total: usize,
    first: usize,
    items: usize,
    small: &'a [(String, Vec<u8>)],
) -> Result<Vec<(usize, &'a [u8])>> {
    part.inputs
        .iter()
        .map(|(name, operand)| {
            if let Some((_, bytes)) = small.iter().find(|(n, _)| n == name) {
                return Ok((operand.storage, bytes.as_slice()));
            }
            let wrong = |message: String| Error::Input { name: name.clone(), message };
            let data = *batch
                .get(name.as_str())
                .ok_or_else(|| wrong("is missing from the batch".into()))?;
            let elements = operand.tensor.numel() * operand.tensor.dtype.size_bytes();
            // Rows of the micro-batch: the input's first dimension may hold
            // several rows an item (tokens).
            let Some(item_bytes) = elements.checked_div(items) else {
                return Err(wrong("a part without items takes no data of the batch".into()));
            };
            if data.len() != item_bytes * total {
                return Err(wrong(format!(
                    "{} bytes were given for {total} items, expected {}",
                    data.len(),
                    item_bytes * total
                )));
            }
            Ok((operand.storage, &data[first * item_bytes..(first + items) * item_bytes]))
        })
        .collect()
}
