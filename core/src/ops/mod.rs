//! The ops: what a graph is made of and what backends execute.
//!
//! Each op has one file here with everything that is independent of a device:
//! shape rule, gradient, cost, lowering to launches, and a plain float64
//! [`reference`](Operation::reference) for the tests. [`Op`] is an enum, so
//! that the compiler lists what a backend lacks.

pub mod attention;
pub mod avg_pool;
pub mod cases;
pub mod concat;
pub mod conv;
mod conv_gather;
pub mod conv_input_gradient;
pub mod conv_weight_gradient;
pub mod convolution;
pub mod convolution_tiles;
pub mod cross_entropy;
pub mod custom;
pub mod embedding;
pub mod linear_cross_entropy;
pub mod map;
pub mod matmul;
pub mod max_pool;
pub mod moments;
pub mod pad;
pub mod permute;
pub mod pool;
pub mod reduce;
pub mod reshape;
pub mod rope;
pub mod slice;
pub mod split;
pub mod strided_copy;
pub mod upsample;

pub use attention::{Attention, AttentionGradient};
pub use avg_pool::{AvgPool, AvgPoolGradient};
pub use concat::Concat;
pub use conv::Conv;
pub use conv_input_gradient::ConvInputGradient;
pub use conv_weight_gradient::ConvWeightGradient;
pub use convolution::Convolution;
pub use cross_entropy::{CrossEntropy, CrossEntropyGradient};
pub use custom::{Custom, CustomKernel, CustomOp};
pub use embedding::{Embedding, EmbeddingGradient};
pub use linear_cross_entropy::{LinearCrossEntropy, LinearCrossEntropyGradient};
pub use map::Map;
pub use matmul::Matmul;
pub use max_pool::{MaxPool, MaxPoolGradient};
pub use moments::Moments;
pub use pad::Pad;
pub use permute::Permute;
pub use pool::Pool;
pub use reduce::{Reduce, ReduceKind};
pub use reshape::Reshape;
pub use rope::Rope;
use serde::{Deserialize, Serialize};
pub use slice::Slice;
pub use split::Split;
pub use upsample::{Upsample, UpsampleGradient, UpsampleMode};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Capabilities, Launch, StorageId};
use crate::shape;

/// Names a value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Shape and element type of a tensor; tensors are contiguous, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Sizes of the dimensions, none of them 0.
    pub shape: Vec<usize>,
    /// Storage of an element.
    pub dtype: DType,
}

impl TensorType {
    /// A tensor type.
    pub fn new(shape: impl Into<Vec<usize>>, dtype: DType) -> TensorType {
        TensorType { shape: shape.into(), dtype }
    }
    /// An f32 tensor.
    pub fn f32(shape: impl Into<Vec<usize>>) -> TensorType {
        TensorType::new(shape, DType::F32)
    }
    /// Elements.
    pub fn numel(&self) -> usize {
        shape::numel(&self.shape)
    }
    /// Bytes, rounded up to whole words of 4 (devices read words).
    pub fn bytes(&self) -> u64 {
        (self.numel() as u64 * self.dtype.size_bytes() as u64).next_multiple_of(4)
    }
}

/// A tensor in float64, for references. Integers are held exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor64 {
    /// Sizes of the dimensions.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub values: Vec<f64>,
    /// The element type it stands for.
    pub dtype: DType,
}

impl Tensor64 {
    /// A tensor of type `t` from its values.
    pub fn new(t: &TensorType, values: Vec<f64>) -> Tensor64 {
        debug_assert_eq!(values.len(), t.numel());
        Tensor64 { shape: t.shape.clone(), values, dtype: t.dtype }
    }

    /// The elements as devices store them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let values = self.values.iter();
        match self.dtype {
            DType::U8 => values.map(|x| *x as u8).collect(),
            DType::I32 => values.flat_map(|x| (*x as i32).to_ne_bytes()).collect(),
            DType::U32 => values.flat_map(|x| (*x as u32).to_ne_bytes()).collect(),
            _ => values.flat_map(|x| (*x as f32).to_ne_bytes()).collect(),
        }
    }

    /// A tensor from its elements as devices store them.
    pub fn from_bytes(t: &TensorType, bytes: &[u8]) -> Tensor64 {
        let words = bytes.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]);
        let values = match t.dtype {
            DType::U8 => bytes[..t.numel()].iter().map(|x| f64::from(*x)).collect(),
            DType::I32 => words.map(|w| f64::from(i32::from_ne_bytes(w))).collect(),
            DType::U32 => words.map(|w| f64::from(u32::from_ne_bytes(w))).collect(),
            _ => words.map(|w| f64::from(f32::from_ne_bytes(w))).collect(),
        };
        Tensor64::new(t, values)
    }
}

/// Arithmetic and traffic of one execution, for the cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Scalar operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Where a gradient rule emits ops; the graph implements it.
pub trait Emit {
    /// Adds an op.
    fn emit(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>>;
    /// The type of a value.
    fn tensor_type(&self, value: ValueId) -> TensorType;
}

/// A tensor of an op at the time of lowering.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operand {
    /// Where it lives.
    pub storage: StorageId,
    /// What the op takes it for.
    pub tensor: TensorType,
}

/// What lowering may look at.
pub struct LowerContext<'a> {
    /// The device.
    pub capabilities: &'a Capabilities,
    /// Inputs of the op.
    pub inputs: &'a [Operand],
    /// Outputs of the op; one with the storage of an input is computed in place.
    pub outputs: &'a [Operand],
    /// Workspace of [`Operation::workspace_bytes`] bytes, if that is not 0.
    pub workspace: Option<StorageId>,
    /// The tuner's choice of a matmul variant, if it made one.
    pub matmul_variant: Option<matmul::Variant>,
}

/// What every op defines.
pub trait Operation {
    /// The op's name: also that of its files in the backends.
    fn name(&self) -> &'static str;
    /// Checks the inputs and gives the outputs' types.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>>;
    /// Emits the gradients of the inputs that are `wanted`, given those of the
    /// outputs (`None`: not used by the loss). Gradient ops have none.
    fn vjp(
        &self,
        _cx: &mut dyn Emit,
        _inputs: &[ValueId],
        _outputs: &[ValueId],
        _gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        Err(Error::shape(self.name(), "has no second derivative"))
    }
    /// Whether gradients flow through output `j`; others are by-products (a
    /// weight, an index, a sum kept for the backward pass).
    fn differentiable(&self, _j: usize) -> bool {
        true
    }
    /// Arithmetic and traffic.
    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(TensorType::bytes).sum();
        Cost { flops: outputs.iter().map(|t| t.numel() as u64).sum(), bytes }
    }
    /// Scratch memory needed while the op runs on a device of these
    /// capabilities.
    fn workspace_bytes(&self, _inputs: &[TensorType], _capabilities: &Capabilities) -> u64 {
        0
    }
    /// Whether output `j` may take the storage of input `k` (of equal size)
    /// when the input dies here.
    fn may_alias(&self, _inputs: &[TensorType], _k: usize, _j: usize) -> bool {
        false
    }
    /// The launches that compute it on a GPU.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch>;
    /// The same in float64 by plain loops, for the tests.
    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64>;
}

/// Any op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Op {
    Map(Map),
    Reduce(Reduce),
    Matmul(Matmul),
    Moments(Moments),
    Conv(Conv),
    ConvInputGradient(ConvInputGradient),
    ConvWeightGradient(ConvWeightGradient),
    Attention(Attention),
    AttentionGradient(AttentionGradient),
    Rope(Rope),
    Reshape(Reshape),
    Permute(Permute),
    Slice(Slice),
    Pad(Pad),
    Concat(Concat),
    Embedding(Embedding),
    EmbeddingGradient(EmbeddingGradient),
    CrossEntropy(CrossEntropy),
    CrossEntropyGradient(CrossEntropyGradient),
    LinearCrossEntropy(LinearCrossEntropy),
    LinearCrossEntropyGradient(LinearCrossEntropyGradient),
    MaxPool(MaxPool),
    MaxPoolGradient(MaxPoolGradient),
    AvgPool(AvgPool),
    AvgPoolGradient(AvgPoolGradient),
    Upsample(Upsample),
    UpsampleGradient(UpsampleGradient),
    Split(Split),
    Custom(Custom),
}

impl std::ops::Deref for Op {
    type Target = dyn Operation;
    fn deref(&self) -> &Self::Target {
        match self {
            Op::Map(o) => o,
            Op::Reduce(o) => o,
            Op::Matmul(o) => o,
            Op::Moments(o) => o,
            Op::Conv(o) => o,
            Op::ConvInputGradient(o) => o,
            Op::ConvWeightGradient(o) => o,
            Op::Attention(o) => o,
            Op::AttentionGradient(o) => o,
            Op::Rope(o) => o,
            Op::Reshape(o) => o,
            Op::Permute(o) => o,
            Op::Slice(o) => o,
            Op::Pad(o) => o,
            Op::Concat(o) => o,
            Op::Embedding(o) => o,
            Op::EmbeddingGradient(o) => o,
            Op::CrossEntropy(o) => o,
            Op::CrossEntropyGradient(o) => o,
            Op::LinearCrossEntropy(o) => o,
            Op::LinearCrossEntropyGradient(o) => o,
            Op::MaxPool(o) => o,
            Op::MaxPoolGradient(o) => o,
            Op::AvgPool(o) => o,
            Op::AvgPoolGradient(o) => o,
            Op::Upsample(o) => o,
            Op::UpsampleGradient(o) => o,
            Op::Split(o) => o,
            Op::Custom(o) => o,
        }
    }
}

/// Checks the number of inputs.
pub(crate) fn expect_inputs(op: &str, inputs: &[TensorType], count: usize) -> Result<()> {
    if inputs.len() == count {
        return Ok(());
    }
    Err(Error::shape(op, format!("takes {count} inputs, was given {}", inputs.len())))
}

/// Checks an element type.
pub(crate) fn expect_dtype(op: &str, t: &TensorType, expected: DType) -> Result<()> {
    if t.dtype == expected {
        return Ok(());
    }
    Err(Error::Type { op: op.to_string(), given: t.dtype, expected: expected.name() })
}

/// Checks that an element takes a whole 32-bit word, as copying kernels need.
pub(crate) fn expect_words(op: &str, t: &TensorType) -> Result<()> {
    if t.dtype.size_bytes() == 4 {
        return Ok(());
    }
    Err(Error::Type { op: op.to_string(), given: t.dtype, expected: "f32, i32 or u32" })
}
