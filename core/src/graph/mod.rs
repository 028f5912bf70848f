//! The graph: values in single assignment, made by ops from leaves.
//!
//! A model is traced into a graph once for each size of micro-batch; tracing
//! is cheap. Names are scoped (`fc1.weight`) and become safetensors keys.

mod attention;
mod convolutions;
mod copies;
mod lookups;
mod losses;
mod maps;
mod norms;
mod pools;
mod products;
mod reductions;

use std::collections::{BTreeMap, BTreeSet};

pub use norms::{Affine, RowMoments, Running};
use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Class;
use crate::ops::{Emit, Op, TensorType, ValueId};
use crate::philox::{Stream, name_stream};
use crate::shape;
use wildmatch::WildMatch;

/// Name of the input that holds seed (2 words), step and first item.
pub const RNG: &str = "plimsoll.rng";
/// Words of the [`RNG`] input.
pub const RNG_WORDS: usize = 4;

/// How a persistent leaf starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Init {
    /// All bytes 0.
    Zeros,
    /// Every element the same float.
    Constant(f32),
    /// Uniform in [−bound, bound).
    Uniform(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// These words.
    Words(Vec<u32>),
}

impl Init {
    /// The initial words of the leaf `name` under a seed. They depend on
    /// nothing else, so that every device starts alike.
    pub fn words(&self, name: &str, seed: u64, count: usize) -> Vec<u32> {
        let mut stream = Stream::new(seed, name_stream(name));
        match self {
            Init::Zeros => vec![0; count],
            Init::Constant(x) => vec![x.to_bits(); count],
            Init::Uniform(b) => (0..count).map(|_| stream.uniform(-b, *b).to_bits()).collect(),
            Init::Normal(s) => (0..count).map(|_| (stream.normal() * s).to_bits()).collect(),
            Init::Words(w) => w.clone(),
        }
    }
}

/// What a leaf is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Leaf {
    /// A weight that is trained.
    Parameter(Init),
    /// Anything else that persists between steps: moments, sums, constants.
    State(Init, Class),
    /// Lives from the start of a training step to its end: a gradient's sum.
    Accumulator,
    /// Uploaded before each run of the part.
    Input,
}

/// Which pass a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Phase {
    Forward,
    Backward,
    Update,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A leaf.
    Leaf(Leaf),
    /// Output `.1` of node `.0`.
    Node(usize, usize),
}

/// A tensor of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Scoped name.
    pub name: String,
    /// Shape and element type.
    pub tensor: TensorType,
    /// Where it comes from.
    pub source: Source,
}

/// An op of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Scoped name.
    pub label: String,
    /// Which pass it belongs to.
    pub phase: Phase,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results.
    pub outputs: Vec<ValueId>,
}

/// Whether a graph is traced for training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops, batch statistics are taken.
    Train,
    /// Neither.
    Evaluate,
}

/// What a model's forward pass gives: per item (or token) a loss and its
/// weight in the mean, and optionally whether it was right.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Loss of each item, f32 `[n]`.
    pub per_item: ValueId,
    /// Weight of each item, f32 `[n]`, not differentiated.
    pub weight: ValueId,
    /// 1 where the prediction is right, f32 `[n]`.
    pub correct: Option<ValueId>,
}

/// A model: something that can be traced.
pub trait Model: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;
    /// Traces the forward pass of `batch` items.
    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss>;
    /// Traces what the model says about `batch` items without targets: f32
    /// logits, say. `None` for a model that is only ever scored.
    fn predict(&self, _g: &mut Graph, _batch: usize) -> Result<Option<ValueId>> {
        Ok(None)
    }
}

/// A running average: once a step, leaf ← (1 − momentum)·leaf +
/// momentum·value, however often the value is computed and whatever the
/// micro-batches, over which it is averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracked {
    /// The state that keeps it.
    pub leaf: ValueId,
    /// What the batch says.
    pub value: ValueId,
    /// The newest batch's weight.
    pub momentum: f32,
}

/// A traced computation.
#[derive(Clone, Debug)]
pub struct Graph {
    /// All values; [`ValueId`] is the position.
    pub values: Vec<Value>,
    /// All nodes, in the order in which they were traced.
    pub nodes: Vec<Node>,
    /// Values to be stored into persistent leaves: (leaf, value).
    pub assigns: Vec<(ValueId, ValueId)>,
    /// Running averages of batch statistics.
    pub tracked: Vec<Tracked>,
    /// Values that gradients do not pass.
    pub stopped: BTreeSet<ValueId>,
    /// Whether this is traced for training.
    pub mode: Mode,
    /// The pass being traced.
    pub phase: Phase,
    leaves: BTreeMap<String, ValueId>,
    scope: Vec<String>,
    streams: u32,
    frozen: Vec<WildMatch>,
}

impl Graph {
    /// An empty graph.
    pub fn new(mode: Mode) -> Graph {
        Graph {
            values: Vec::new(),
            nodes: Vec::new(),
            assigns: Vec::new(),
            tracked: Vec::new(),
            stopped: BTreeSet::new(),
            mode,
            phase: Phase::Forward,
            leaves: BTreeMap::new(),
            scope: Vec::new(),
            streams: 0,
            frozen: Vec::new(),
        }
    }

    /// Parameters traced from now on whose full names match are constants: `*`
    /// stands for any characters, `?` for one.
    pub fn freeze(&mut self, patterns: &[String]) {
        self.frozen.extend(patterns.iter().map(|p| WildMatch::new(p)));
    }

    /// The same value, which gradients do not pass.
    pub fn stop_gradient(&mut self, x: ValueId) -> Result<ValueId> {
        let shape = self.shape(x).to_vec();
        let y = self.reshape(x, &shape)?;
        self.stopped.insert(y);
        Ok(y)
    }

    /// Runs `f` with `name` added to the scope.
    pub fn scoped<T>(&mut self, name: &str, f: impl FnOnce(&mut Graph) -> T) -> T {
        self.scope.push(name.to_string());
        let result = f(self);
        self.scope.pop();
        result
    }

    /// Replaces the whole scope; gives back the old one.
    pub fn replace_scope(&mut self, scope: Vec<String>) -> Vec<String> {
        std::mem::replace(&mut self.scope, scope)
    }

    /// A name within the scope.
    pub fn scoped_name(&self, name: &str) -> String {
        let mut parts: Vec<&str> = self.scope.iter().map(String::as_str).collect();
        parts.push(name);
        parts.join(".")
    }

    /// The value's description.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// The value's shape.
    pub fn shape(&self, id: ValueId) -> &[usize] {
        &self.value(id).tensor.shape
    }

    /// All leaves by full name.
    pub fn leaves(&self) -> &BTreeMap<String, ValueId> {
        &self.leaves
    }

    /// A leaf under its full name. The same name gives the same leaf.
    ///
    /// # Errors
    /// An empty shape, or a leaf of that name that is something else.
    pub fn leaf(&mut self, name: &str, tensor: TensorType, leaf: Leaf) -> Result<ValueId> {
        check_shape(name, &tensor.shape)?;
        if let Some(id) = self.leaves.get(name) {
            let old = self.value(*id);
            if old.tensor != tensor || old.source != Source::Leaf(leaf) {
                return Err(Error::shape(name, "defined twice, differently"));
            }
            return Ok(*id);
        }
        let id = self.push_value(name.to_string(), tensor, Source::Leaf(leaf));
        self.leaves.insert(name.to_string(), id);
        Ok(id)
    }

    /// An f32 weight in the current scope: trained, unless it is frozen.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> Result<ValueId> {
        let name = self.scoped_name(name);
        let leaf = match self.frozen.iter().any(|p| p.matches(&name)) {
            true => Leaf::State(init, Class::Parameter),
            false => Leaf::Parameter(init),
        };
        self.leaf(&name, TensorType::f32(shape), leaf)
    }

    /// An f32 state in the current scope that is not trained: running
    /// statistics.
    pub fn state(&mut self, name: &str, shape: &[usize], init: Init) -> Result<ValueId> {
        let name = self.scoped_name(name);
        self.leaf(&name, TensorType::f32(shape), Leaf::State(init, Class::State))
    }

    /// Data of the micro-batch; the first dimension is the item.
    pub fn input(&mut self, name: &str, shape: &[usize], dtype: DType) -> Result<ValueId> {
        self.leaf(name, TensorType::new(shape, dtype), Leaf::Input)
    }

    /// Stores `value` into a persistent leaf at the end of the part.
    pub fn assign(&mut self, leaf: ValueId, value: ValueId) -> Result<()> {
        if !matches!(
            self.value(leaf).source,
            Source::Leaf(Leaf::Parameter(_) | Leaf::State(..) | Leaf::Accumulator)
        ) {
            let message = "is stored into, but keeps nothing between parts";
            return Err(Error::shape(&self.value(leaf).name, message));
        }
        let (to, from) = (&self.value(leaf).tensor, &self.value(value).tensor);
        if to.dtype != from.dtype || to.numel() != from.numel() {
            return Err(Error::shape(
                &self.value(leaf).name,
                format!("holds {:?}, was assigned {:?}", to.shape, from.shape),
            ));
        }
        self.assigns.push((leaf, value));
        Ok(())
    }

    fn push_value(&mut self, name: String, tensor: TensorType, source: Source) -> ValueId {
        self.values.push(Value { name, tensor, source });
        ValueId(self.values.len() as u32 - 1)
    }
}

/// Shapes are neither empty nor larger than kernels can index.
fn check_shape(name: &str, shape: &[usize]) -> Result<()> {
    if shape::checked_numel(shape).is_some() {
        return Ok(());
    }
    let message = format!(
        "shape {shape:?} is empty or has 2³¹ elements or more; every dimension must be at least 1"
    );
    Err(Error::shape(name, message))
}

impl Emit for Graph {
    fn emit(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let types: Vec<TensorType> = inputs.iter().map(|i| self.tensor_type(*i)).collect();
        let label = self.scoped_name(op.name());
        let outputs = op.infer(&types).map_err(|e| match e {
            Error::Shape { message, .. } => Error::Shape { op: label.clone(), message },
            other => other,
        })?;
        for t in &outputs {
            check_shape(&label, &t.shape)?;
        }
        let node = self.nodes.len();
        let outputs: Vec<ValueId> = outputs
            .into_iter()
            .enumerate()
            .map(|(j, t)| self.push_value(label.clone(), t, Source::Node(node, j)))
            .collect();
        let (inputs, phase) = (inputs.to_vec(), self.phase);
        self.nodes.push(Node { op, label, phase, inputs, outputs: outputs.clone() });
        Ok(outputs)
    }

    fn tensor_type(&self, value: ValueId) -> TensorType {
        self.value(value).tensor.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_shapes_are_typed_errors() {
        let mut g = Graph::new(Mode::Train);
        assert!(matches!(g.input("x", &[0, 3], DType::F32), Err(Error::Shape { .. })));
        let x = g.input("x", &[2, 3], DType::F32).expect("fine");
        assert!(matches!(g.slice(x, &[0, 1], &[2, 1]), Err(Error::Shape { .. })));
        assert!(matches!(g.dropout(x, 1.0, 2), Err(Error::Setting { .. })));
    }

    #[test]
    fn names_are_scoped() {
        let mut g = Graph::new(Mode::Train);
        let p = g.scoped("h", |g| g.scoped("0", |g| g.parameter("weight", &[1], Init::Zeros)));
        assert_eq!(g.value(p.expect("fine")).name, "h.0.weight");
    }
}
