//! `custom`: an op that a user of the library brings, with a kernel in WGSL,
//! the same on the CPU, its shape rule and its gradient.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Cost, Emit, LowerContext, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Launch, PARAMETER_WORDS};

/// What an op of one's own defines. [`Custom`] puts it into a graph.
///
/// Its `Debug` text must tell apart what computes differently: two ops of the
/// same text are taken for the same.
pub trait CustomOp: fmt::Debug + Send + Sync {
    /// Its name, for labels, profiles and errors.
    fn name(&self) -> &str;

    /// Checks the inputs and gives the outputs' types.
    ///
    /// # Errors
    /// Inputs that do not fit; see [`Error::shape`].
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>>;

    /// The kernel that computes it on a GPU.
    fn wgsl(&self, inputs: &[TensorType], outputs: &[TensorType]) -> CustomKernel;

    /// Computes it on the CPU. The outputs hold anything before.
    fn compute(&self, inputs: &[HostTensor<'_>], outputs: &mut [HostTensorMut<'_>]);

    /// Emits the gradients of the inputs that are `wanted`, given those of the
    /// outputs (`None`: not used by the loss): with the graph's ops, or with
    /// others of one's own.
    ///
    /// # Errors
    /// By default, that there is none.
    fn vjp(
        &self,
        _cx: &mut dyn Emit,
        _inputs: &[ValueId],
        _outputs: &[ValueId],
        _gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        Err(Error::shape(self.name(), "defines no gradient"))
    }

    /// Scalar operations of one execution, for the prediction of a step's time.
    fn flops(&self, _inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        outputs.iter().map(|t| t.numel() as u64).sum()
    }
}

/// A kernel in WGSL.
///
/// The source holds the entry point `main` and whatever it calls. For inputs
/// and outputs 0, 1, … there are `load_input0(i: u32)`, `load_output0(i)` and
/// `store_output0(i, value)`, of f32, i32 or u32 (bytes load as u32 and cannot
/// be stored); `parameter(i: u32) -> u32` reads the parameters, and
/// `linear_group(group, groups)` numbers the workgroups, of which there may be
/// a few more than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomKernel {
    /// The source.
    pub source: String,
    /// Workgroups.
    pub groups: u64,
    /// At most [`PARAMETER_WORDS`] words.
    pub parameters: Vec<u32>,
}

/// A tensor in the host's memory.
#[derive(Clone, Copy, Debug)]
pub struct HostTensor<'a> {
    /// Shape and element type.
    pub tensor: &'a TensorType,
    /// Its elements, row-major.
    pub bytes: &'a [u8],
}

/// A tensor in the host's memory that is written.
#[derive(Debug)]
pub struct HostTensorMut<'a> {
    /// Shape and element type.
    pub tensor: &'a TensorType,
    /// Its elements, row-major.
    pub bytes: &'a mut [u8],
}

impl HostTensor<'_> {
    /// The elements of a tensor of this type.
    pub fn elements<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes)
    }
}

impl HostTensorMut<'_> {
    /// The elements of a tensor of this type.
    pub fn elements<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes)
    }
}

/// An op of one's own in a graph.
#[derive(Clone, Debug)]
pub struct Custom(Arc<dyn CustomOp>);

impl Custom {
    /// Wraps an op.
    pub fn new(op: impl CustomOp + 'static) -> Custom {
        Custom(Arc::new(op))
    }

    fn text(&self) -> String {
        format!("{}: {:?}", self.0.name(), self.0)
    }
}

impl Deref for Custom {
    type Target = dyn CustomOp;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for Custom {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Custom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let reason = "is part of a program and cannot be read from a file; plan again";
        Err(D::Error::custom(format!("the op {text} {reason}")))
    }
}

impl Operation for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let fail = |message: String| Err(Error::shape(self.0.name(), message));
        let outputs = self.0.infer(inputs)?;
        if outputs.is_empty() {
            return fail("has no output".into());
        }
        let computed = |t: &TensorType| matches!(t.dtype, DType::F32 | DType::I32 | DType::U32);
        if let Some(t) = outputs.iter().find(|t| !computed(t)) {
            return fail(format!("an output of {}: expected f32, i32 or u32", t.dtype));
        }
        let words = self.0.wgsl(inputs, &outputs).parameters.len();
        if words > PARAMETER_WORDS {
            return fail(format!("{words} parameters: at most {PARAMETER_WORDS} words"));
        }
        Ok(outputs)
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let found = self.0.vjp(cx, inputs, outputs, gradients, wanted)?;
        if found.len() != inputs.len() {
            let message = format!("{} gradients for {} inputs", found.len(), inputs.len());
            return Err(Error::shape(self.0.name(), message));
        }
        for (input, gradient) in inputs.iter().zip(&found) {
            let Some(gradient) = gradient else { continue };
            let (to, of) = (cx.tensor_type(*input), cx.tensor_type(*gradient));
            if to != of {
                let message = format!("a gradient {:?} of an input {:?}", of.shape, to.shape);
                return Err(Error::shape(self.0.name(), message));
            }
        }
        Ok(found)
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(TensorType::bytes).sum();
        Cost { flops: self.0.flops(inputs, outputs), bytes }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types = |operands: &[super::Operand]| -> Vec<TensorType> {
            operands.iter().map(|o| o.tensor.clone()).collect()
        };
        let kernel = self.0.wgsl(&types(cx.inputs), &types(cx.outputs));
        let mut bindings = map::Bindings::default();
        let named = [("input", cx.inputs), ("output", cx.outputs)];
        for (name, operands) in named {
            for (k, o) in operands.iter().enumerate() {
                bindings.bind_named(&format!("{name}{k}"), o.storage, o.tensor.dtype);
            }
        }
        let groups = cx.capabilities.fold_groups(kernel.groups);
        let mut launch = bindings.launch(self.0.name(), vec![], vec![], groups, kernel.parameters);
        launch.kernel.source = Some(kernel.source);
        vec![launch]
    }

    /// That of the CPU, in f32.
    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let Ok(outputs) = self.0.infer(&types) else { return Vec::new() };
        // In words, so that elements of any type are aligned.
        let words = |t: &TensorType| vec![0u32; t.bytes() as usize / 4];
        let bytes = |t: &TensorType| t.numel() * t.dtype.size_bytes();
        let mut given: Vec<Vec<u32>> = types.iter().map(words).collect();
        for (to, t) in given.iter_mut().zip(inputs) {
            let from = t.to_bytes();
            bytemuck::cast_slice_mut(to)[..from.len()].copy_from_slice(&from);
        }
        let tensors: Vec<HostTensor<'_>> = types
            .iter()
            .zip(&given)
            .map(|(tensor, words)| HostTensor {
                tensor,
                bytes: &bytemuck::cast_slice(words)[..bytes(tensor)],
            })
            .collect();
        // An output's elements are words.
        let mut results: Vec<Vec<u32>> = outputs.iter().map(words).collect();
        let mut to: Vec<HostTensorMut<'_>> = outputs
            .iter()
            .zip(&mut results)
            .map(|(tensor, words)| HostTensorMut { tensor, bytes: bytemuck::cast_slice_mut(words) })
            .collect();
        self.0.compute(&tensors, &mut to);
        let tensors = outputs.iter().zip(&results);
        tensors.map(|(t, words)| Tensor64::from_bytes(t, bytemuck::cast_slice(words))).collect()
    }
}
