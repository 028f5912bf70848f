//! Step programs: what a training step executes, before memory is planned.
//!
//! A step is a list of parts. With one micro-batch there is a single part, in
//! which each weight is updated as soon as its gradient is known, so that
//! gradients die at once. With several there are `Begin` (clears the sums),
//! one `Micro` part for each size of micro-batch, and `Update`.

pub mod fuse;
pub mod order;
pub mod rewrite;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::autodiff;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{E, Expression};
use crate::graph::{Graph, Init, Leaf, Loss, Mode, Model, Phase, Source, Value};
use crate::ledger::Class;
use crate::ops::{Map, Op, TensorType, ValueId};
use crate::optimizers::{Recipe, Update, hyper_leaf};

/// When a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Once a step, first: clears the accumulators.
    Begin,
    /// Forward and backward of a micro-batch of this many items; with a single
    /// micro-batch, the update too.
    Micro {
        /// Items of the micro-batch.
        items: usize,
    },
    /// Once a step, last: the optimizer.
    Update,
    /// Forward of a batch of this many items, adding to the evaluation sums.
    Evaluate {
        /// Items of the batch.
        items: usize,
    },
    /// What the model says about this many items.
    Predict {
        /// Items of the batch.
        items: usize,
    },
}

impl PartKind {
    /// Whether it belongs to a training step.
    pub fn trains(self) -> bool {
        !matches!(self, PartKind::Evaluate { .. } | PartKind::Predict { .. })
    }
}

/// Name of the state that holds Σ wᵢlᵢ of the last training step.
pub const LOSS_SUM: &str = "plimsoll.loss_sum";
/// Name of the state that holds Σ wᵢ of the last training step.
pub const WEIGHT_SUM: &str = "plimsoll.weight_sum";
/// Names of the evaluation sums: weighted loss, weight, number right.
pub const EVALUATION_SUMS: [&str; 3] = [
    "plimsoll.evaluation.loss_sum",
    "plimsoll.evaluation.weight_sum",
    "plimsoll.evaluation.correct_sum",
];
/// Name of the state that holds what the model said last.
pub const PREDICTION: &str = "plimsoll.prediction";

/// A value of a part, or a view of it under another shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// Index into [`PartProgram::values`].
    pub value: usize,
    /// What the op takes it for.
    pub tensor: TensorType,
}

/// An op of a part.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramNode {
    /// What is computed.
    pub op: Op,
    /// Scoped name.
    pub label: String,
    /// Which pass it belongs to.
    pub phase: Phase,
    /// Operands.
    pub inputs: Vec<Use>,
    /// Results.
    pub outputs: Vec<Use>,
    /// Whether it computes again what was dropped.
    pub again: bool,
}

impl ProgramNode {
    /// Types of the operands.
    pub fn input_types(&self) -> Vec<TensorType> {
        self.inputs.iter().map(|u| u.tensor.clone()).collect()
    }

    /// Types of the results.
    pub fn output_types(&self) -> Vec<TensorType> {
        self.outputs.iter().map(|u| u.tensor.clone()).collect()
    }

    /// Whether output `j` may be computed in the memory of input `k`, if that
    /// value dies here.
    pub fn may_take(&self, part: &PartProgram, k: usize, j: usize) -> bool {
        let (input, output) = (&self.inputs[k], &self.outputs[j]);
        let types = self.input_types();
        part.is_transient(input.value)
            && part.values[input.value].bytes == part.values[output.value].bytes
            && input.tensor.dtype == output.tensor.dtype
            && self.inputs.iter().enumerate().all(|(i, other)| {
                i != k && other.value != input.value || self.op.may_alias(&types, i, j)
            })
    }
}

/// A value that needs memory.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramValue {
    /// Scoped name.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// What it is for.
    pub class: Class,
    /// The leaf that it is, if it is one.
    pub leaf: Option<Leaf>,
    /// The leaf (by value index) into which it is stored.
    pub assigned: Option<usize>,
    /// Shape and type.
    pub tensor: TensorType,
}

/// A part with its ops in execution order.
#[derive(Clone, Debug, PartialEq)]
pub struct PartProgram {
    /// When it runs.
    pub kind: PartKind,
    /// Ops in order.
    pub nodes: Vec<ProgramNode>,
    /// Values; unused ones stay in the table.
    pub values: Vec<ProgramValue>,
}

impl PartProgram {
    /// Whether a value's memory comes and goes within the part.
    pub fn is_transient(&self, value: usize) -> bool {
        let v = &self.values[value];
        v.assigned.is_none() && v.leaf.as_ref().is_none_or(|l| *l == Leaf::Input)
    }
}

/// Traces, differentiates, fuses and orders all parts of a training step over
/// `batch` items, of an evaluation and of a prediction. `sizes` are the
/// distinct micro-batch sizes, the largest first; a single one of the whole
/// batch is not split.
pub fn build(
    model: &dyn Model,
    recipe: &Recipe,
    batch: usize,
    sizes: &[usize],
    evaluate_sizes: &[usize],
    predict_items: Option<usize>,
) -> Result<Vec<PartProgram>> {
    recipe.check()?;
    let split = sizes != [batch];
    let mut parts = Vec::new();
    let mut accumulators = Accumulators::default();
    for &items in sizes {
        let part;
        (part, accumulators) = micro(model, recipe, items, batch, split)?;
        parts.push(part);
    }
    if split {
        parts.insert(0, begin(&accumulators)?);
        parts.push(update(recipe, &accumulators)?);
    }
    for &items in evaluate_sizes {
        parts.push(evaluate(model, recipe, items)?);
    }
    if let Some(items) = predict_items {
        parts.push(predict(model, recipe, items)?);
    }
    Ok(parts)
}

/// Whether a model takes statistics of the whole batch, so that splitting it
/// into micro-batches changes what it computes.
pub fn takes_batch_statistics(model: &dyn Model, batch: usize) -> Result<bool> {
    let mut g = Graph::new(Mode::Train);
    model.forward(&mut g, batch)?;
    Ok(!g.tracked.is_empty())
}

/// Traces a model and checks that its loss is one of items.
fn forward(model: &dyn Model, recipe: &Recipe, g: &mut Graph, items: usize) -> Result<Loss> {
    g.freeze(&recipe.frozen);
    let loss = model.forward(g, items)?;
    let shape = g.shape(loss.per_item).to_vec();
    for value in [Some(loss.per_item), Some(loss.weight), loss.correct].into_iter().flatten() {
        let t = &g.value(value).tensor;
        if t.dtype != DType::F32 || t.shape != shape || !t.numel().is_multiple_of(items) {
            let message = format!(
                "{} {:?}: loss, weight and correctness must be f32 of one shape with a multiple of {items} elements",
                t.dtype, t.shape
            );
            return Err(Error::shape(format!("the loss of {}", model.name()), message));
        }
    }
    Ok(loss)
}

fn scalar() -> TensorType {
    TensorType::f32([1])
}

fn sum_leaf(g: &mut Graph, name: &str) -> Result<ValueId> {
    g.leaf(name, scalar(), Leaf::State(Init::Zeros, Class::State))
}

/// Σ over all elements as `[1]`.
fn total(g: &mut Graph, x: ValueId) -> Result<ValueId> {
    let axes: Vec<usize> = (0..g.shape(x).len()).collect();
    let sum = g.sum(x, &axes)?;
    g.reshape(sum, &[1])
}

/// Adds `x` to a leaf.
fn accumulate(g: &mut Graph, leaf: ValueId, x: ValueId) -> Result<()> {
    let sum = g.map(&[leaf, x], |i| &i[0] + &i[1])?;
    g.assign(leaf, sum)
}

/// What micro-batches add up for the update.
#[derive(Default)]
struct Accumulators {
    /// Names and shapes of the weights with gradients.
    gradients: Vec<(String, TensorType)>,
    /// Names, types and momenta of the running averages.
    averages: Vec<(String, TensorType, Leaf, f32)>,
}

impl Accumulators {
    fn leaves(&self, g: &mut Graph) -> Result<Vec<ValueId>> {
        let gradients = self.gradients.iter().map(|(name, t)| gradient_leaf(g, name, t));
        let mut leaves: Vec<ValueId> = gradients.collect::<Result<_>>()?;
        for (name, tensor, ..) in &self.averages {
            leaves.push(average_leaf(g, name, tensor)?);
        }
        Ok(leaves)
    }
}

fn gradient_leaf(g: &mut Graph, parameter: &str, tensor: &TensorType) -> Result<ValueId> {
    g.leaf(&format!("{parameter}.gradient"), tensor.clone(), Leaf::Accumulator)
}

fn average_leaf(g: &mut Graph, state: &str, tensor: &TensorType) -> Result<ValueId> {
    g.leaf(&format!("{state}.average"), tensor.clone(), Leaf::Accumulator)
}

/// leaf ← (1 − momentum)·leaf + momentum·value.
fn take_over(g: &mut Graph, leaf: ValueId, value: ValueId, momentum: f32) -> Result<()> {
    let mixed = g.map(&[leaf, value], |x| &x[0] * (1.0 - momentum) + &x[1] * momentum)?;
    g.assign(leaf, mixed)
}

fn micro(
    model: &dyn Model,
    recipe: &Recipe,
    items: usize,
    batch: usize,
    split: bool,
) -> Result<(PartProgram, Accumulators)> {
    let mut g = Graph::new(Mode::Train);
    let loss = forward(model, recipe, &mut g, items)?;
    let weighted = g.map(&[loss.per_item, loss.weight], |x| &x[0] * &x[1])?;
    let loss_total = total(&mut g, weighted)?;
    let weight_total = total(&mut g, loss.weight)?;
    let parameters = autodiff::parameters(&g);
    // d Σ wᵢlᵢ / d lᵢ = wᵢ: the seed is the weight itself.
    let gradients = autodiff::backward(&mut g, &[(loss.per_item, loss.weight)], &parameters)?;
    let (loss_sum, weight_sum) = (sum_leaf(&mut g, LOSS_SUM)?, sum_leaf(&mut g, WEIGHT_SUM)?);
    let mut accumulators = Accumulators::default();
    let mut updated = Vec::new();
    for (parameter, gradient) in parameters.into_iter().zip(gradients) {
        updated.extend(gradient.map(|gradient| (parameter, gradient)));
    }
    let final_gradients: BTreeSet<ValueId> = updated.iter().map(|(_, g)| *g).collect();
    g.phase = Phase::Update;
    if split {
        accumulate(&mut g, loss_sum, loss_total)?;
        accumulate(&mut g, weight_sum, weight_total)?;
    } else {
        g.assign(loss_sum, loss_total)?;
        g.assign(weight_sum, weight_total)?;
    }
    if !split {
        update_all(&mut g, recipe, &updated, weight_total)?;
        for t in std::mem::take(&mut g.tracked) {
            take_over(&mut g, t.leaf, t.value, t.momentum)?;
        }
        let part = finish(&g, PartKind::Micro { items }, &final_gradients)?;
        return Ok((part, accumulators));
    }
    for (parameter, gradient) in updated {
        let (name, tensor) = (g.value(parameter).name.clone(), g.value(parameter).tensor.clone());
        let old = g.replace_scope(vec![name.clone()]);
        let leaf = gradient_leaf(&mut g, &name, &tensor)?;
        accumulate(&mut g, leaf, gradient)?;
        accumulators.gradients.push((name, tensor));
        g.replace_scope(old);
    }
    let share = items as f32 / batch as f32;
    for t in std::mem::take(&mut g.tracked) {
        let Value { name, tensor, source: Source::Leaf(leaf) } = g.value(t.leaf).clone() else {
            return Err(Error::shape(&g.value(t.leaf).name, "is tracked, but is not a state"));
        };
        let old = g.replace_scope(vec![name.clone()]);
        let sum = average_leaf(&mut g, &name, &tensor)?;
        let part = g.map(&[t.value], |x| &x[0] * share)?;
        accumulate(&mut g, sum, part)?;
        accumulators.averages.push((name, tensor, leaf, t.momentum));
        g.replace_scope(old);
    }
    let part = finish(&g, PartKind::Micro { items }, &final_gradients)?;
    Ok((part, accumulators))
}

/// Emits the updates of weights, given the sums of their gradients.
fn update_all(
    g: &mut Graph,
    recipe: &Recipe,
    updated: &[(ValueId, ValueId)],
    weight_sum: ValueId,
) -> Result<()> {
    let old = g.replace_scope(vec!["update".to_string()]);
    let hyper = hyper_leaf(g)?;
    let sums: Vec<ValueId> = updated.iter().map(|(_, sum)| *sum).collect();
    let gradient_scale = recipe.gradient_scale(g, &sums, weight_sum)?;
    for (parameter, gradient) in updated {
        let (name, rank) = (g.value(*parameter).name.clone(), g.shape(*parameter).len());
        let (learning_rate_scale, weight_decay_scale) = recipe.scales(&name, rank);
        g.replace_scope(vec![name]);
        let (parameter, gradient) = (*parameter, *gradient);
        let update = Update {
            parameter,
            gradient,
            gradient_scale,
            hyper,
            learning_rate_scale,
            weight_decay_scale,
        };
        recipe.optimizer.update(g, &update)?;
    }
    g.replace_scope(old);
    Ok(())
}

fn begin(accumulators: &Accumulators) -> Result<PartProgram> {
    let mut g = Graph::new(Mode::Train);
    g.phase = Phase::Update;
    let mut leaves = vec![sum_leaf(&mut g, LOSS_SUM)?, sum_leaf(&mut g, WEIGHT_SUM)?];
    leaves.extend(accumulators.leaves(&mut g)?);
    for leaf in leaves {
        let (name, shape) = (g.value(leaf).name.clone(), g.shape(leaf).to_vec());
        let old = g.replace_scope(vec![name]);
        let zero = Map { expression: Expression::new(vec![], &[E::constant(0.0)]), shape };
        let zero = crate::ops::Emit::emit(&mut g, Op::Map(zero), &[])?[0];
        g.assign(leaf, zero)?;
        g.replace_scope(old);
    }
    finish(&g, PartKind::Begin, &BTreeSet::new())
}

fn update(recipe: &Recipe, accumulators: &Accumulators) -> Result<PartProgram> {
    let mut g = Graph::new(Mode::Train);
    g.phase = Phase::Update;
    let weight_sum = sum_leaf(&mut g, WEIGHT_SUM)?;
    let mut updated = Vec::new();
    for (name, tensor) in &accumulators.gradients {
        let gradient = gradient_leaf(&mut g, name, tensor)?;
        // The initial value is the micro part's; leaves are joined by name.
        let parameter = g.leaf(name, tensor.clone(), Leaf::Parameter(Init::Zeros))?;
        updated.push((parameter, gradient));
    }
    update_all(&mut g, recipe, &updated, weight_sum)?;
    for (name, tensor, leaf, momentum) in &accumulators.averages {
        let old = g.replace_scope(vec![name.clone()]);
        let state = g.leaf(name, tensor.clone(), leaf.clone())?;
        let value = average_leaf(&mut g, name, tensor)?;
        take_over(&mut g, state, value, *momentum)?;
        g.replace_scope(old);
    }
    finish(&g, PartKind::Update, &BTreeSet::new())
}

fn evaluate(model: &dyn Model, recipe: &Recipe, items: usize) -> Result<PartProgram> {
    let mut g = Graph::new(Mode::Evaluate);
    let loss = forward(model, recipe, &mut g, items)?;
    let weighted = g.map(&[loss.per_item, loss.weight], |x| &x[0] * &x[1])?;
    let mut sums = vec![total(&mut g, weighted)?, total(&mut g, loss.weight)?];
    if let Some(correct) = loss.correct {
        let weighted = g.map(&[correct, loss.weight], |x| &x[0] * &x[1])?;
        sums.push(total(&mut g, weighted)?);
    }
    for (name, sum) in EVALUATION_SUMS.iter().zip(sums) {
        let leaf = sum_leaf(&mut g, name)?;
        accumulate(&mut g, leaf, sum)?;
    }
    finish(&g, PartKind::Evaluate { items }, &BTreeSet::new())
}

fn predict(model: &dyn Model, recipe: &Recipe, items: usize) -> Result<PartProgram> {
    let mut g = Graph::new(Mode::Evaluate);
    g.freeze(&recipe.frozen);
    let Some(said) = model.predict(&mut g, items)? else {
        let message = format!("{} predicts nothing", model.name());
        return Err(Error::Setting { name: "prediction items", message });
    };
    let tensor = g.value(said).tensor.clone();
    if tensor.dtype != DType::F32 {
        let message = format!("{}, expected f32", tensor.dtype);
        return Err(Error::shape(format!("the prediction of {}", model.name()), message));
    }
    let leaf = g.leaf(PREDICTION, tensor, Leaf::State(Init::Zeros, Class::State))?;
    g.assign(leaf, said)?;
    finish(&g, PartKind::Predict { items }, &BTreeSet::new())
}

/// From a graph to an ordered, fused list of ops without reshapes and dead
/// code. `gradients` are the weights' final gradients, for their class.
pub fn finish(g: &Graph, kind: PartKind, gradients: &BTreeSet<ValueId>) -> Result<PartProgram> {
    let mut part = lower_views(g, kind, gradients)?;
    remove_dead(&mut part);
    fuse::fuse(&mut part);
    order::order(&mut part)?;
    Ok(part)
}

/// Replaces reshapes by views of their roots and settles the assignments.
fn lower_views(g: &Graph, kind: PartKind, gradients: &BTreeSet<ValueId>) -> Result<PartProgram> {
    let mut root: Vec<usize> = (0..g.values.len()).collect();
    for node in &g.nodes {
        if matches!(node.op, Op::Reshape(_)) {
            root[node.outputs[0].0 as usize] = root[node.inputs[0].0 as usize];
        }
    }
    let gradients: BTreeSet<usize> = gradients.iter().map(|v| root[v.0 as usize]).collect();
    let mut values: Vec<ProgramValue> = g
        .values
        .iter()
        .enumerate()
        .map(|(v, value)| {
            let (leaf, class) = match &value.source {
                Source::Leaf(leaf) => {
                    let class = match leaf {
                        Leaf::Parameter(_) => Class::Parameter,
                        Leaf::State(_, class) => *class,
                        Leaf::Accumulator => Class::Gradient,
                        Leaf::Input => Class::Input,
                    };
                    (Some(leaf.clone()), class)
                }
                Source::Node(n, _) => {
                    let class = match g.nodes[*n].phase {
                        _ if gradients.contains(&v) => Class::Gradient,
                        Phase::Forward => Class::Activation,
                        _ => Class::ActivationGradient,
                    };
                    (None, class)
                }
            };
            let (name, tensor) = (value.name.clone(), value.tensor.clone());
            ProgramValue { name, bytes: tensor.bytes(), class, leaf, assigned: None, tensor }
        })
        .collect();
    let as_use =
        |v: &ValueId| Use { value: root[v.0 as usize], tensor: g.value(*v).tensor.clone() };
    let mut nodes: Vec<ProgramNode> = g
        .nodes
        .iter()
        .filter(|n| !matches!(n.op, Op::Reshape(_)))
        .map(|n| ProgramNode {
            op: n.op.clone(),
            label: n.label.clone(),
            phase: n.phase,
            inputs: n.inputs.iter().map(as_use).collect(),
            outputs: n.outputs.iter().map(as_use).collect(),
            again: false,
        })
        .collect();
    let sources: BTreeMap<usize, usize> =
        g.assigns.iter().map(|(leaf, v)| (leaf.0 as usize, root[v.0 as usize])).collect();
    let mut assigned_leaves = BTreeSet::new();
    let mut producer = vec![None; values.len()];
    let mut is_read = vec![false; values.len()];
    for (n, node) in nodes.iter().enumerate() {
        node.outputs.iter().for_each(|u| producer[u.value] = Some(n));
        node.inputs.iter().for_each(|u| is_read[u.value] = true);
    }
    for (leaf, value) in &g.assigns {
        let (leaf, source) = (leaf.0 as usize, root[value.0 as usize]);
        if !assigned_leaves.insert(leaf) {
            return Err(Error::shape(&values[leaf].name, "is assigned twice in one part"));
        }
        let maker = producer[source].filter(|_| !is_read[source]).map(|n| &nodes[n]);
        let free = values[source].leaf.is_none() && values[source].assigned.is_none();
        let direct = |node| free && writes_directly(node, &sources, leaf, source);
        let target = if maker.is_some_and(direct) {
            source
        } else {
            // Through a copy of its own, which runs when nobody reads the
            // leaf's old content any more.
            let tensor = g.value(*value).tensor.clone();
            let expression = Expression::new(vec![tensor.dtype], &[E::input(0)]);
            is_read[source] = true;
            let copy = values.len();
            values.push(ProgramValue { leaf: None, ..values[source].clone() });
            nodes.push(ProgramNode {
                op: Op::Map(Map { expression, shape: tensor.shape.clone() }),
                label: format!("{}.assign", values[leaf].name),
                phase: Phase::Update,
                inputs: vec![Use { value: source, tensor: tensor.clone() }],
                outputs: vec![Use { value: copy, tensor }],
                again: false,
            });
            copy
        };
        values[target].assigned = Some(leaf);
    }
    Ok(PartProgram { kind, nodes, values })
}

/// Whether `node`, which makes `source`, may write it into `leaf`'s memory.
fn writes_directly(
    node: &ProgramNode,
    sources: &BTreeMap<usize, usize>,
    leaf: usize,
    source: usize,
) -> bool {
    // Two nodes that each read what the other overwrites could not be ordered.
    let crosses = node.inputs.iter().filter(|u| u.value != leaf).any(|u| {
        let other = sources.get(&u.value);
        other.is_some_and(|source| node.outputs.iter().all(|o| o.value != *source))
    });
    !crosses && reads_in_place(node, leaf, source)
}

/// Whether `node` may write `source` over `leaf` although it reads it.
fn reads_in_place(node: &ProgramNode, leaf: usize, source: usize) -> bool {
    let types = node.input_types();
    let Some(j) = node.outputs.iter().position(|u| u.value == source) else { return false };
    node.inputs.iter().enumerate().all(|(k, u)| u.value != leaf || node.op.may_alias(&types, k, j))
}

/// Drops nodes that contribute to no assignment.
fn remove_dead(part: &mut PartProgram) {
    let mut live: Vec<bool> = part.values.iter().map(|v| v.assigned.is_some()).collect();
    let mut keep = vec![false; part.nodes.len()];
    for n in (0..part.nodes.len()).rev() {
        let node = &part.nodes[n];
        if node.outputs.iter().any(|u| live[u.value]) {
            keep[n] = true;
            node.inputs.iter().for_each(|u| live[u.value] = true);
        }
    }
    let mut n = 0;
    part.nodes.retain(|_| {
        n += 1;
        keep[n - 1]
    });
}

/// Which leaves each part stores into: value index of the leaf → writer node.
pub(crate) fn writers(part: &PartProgram) -> BTreeMap<usize, usize> {
    let mut out = BTreeMap::new();
    for (n, node) in part.nodes.iter().enumerate() {
        for u in &node.outputs {
            if let Some(leaf) = part.values[u.value].assigned {
                out.insert(leaf, n);
            }
        }
    }
    out
}
