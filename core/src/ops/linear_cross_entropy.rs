//! `linear_cross_entropy`: a linear layer and [`cross_entropy`] in one, so that
//! the logits, the largest tensor of a language model, never exist whole.
//!
//! Rows are cut into chunks. The logits of a chunk lie in workspace, are turned
//! into losses and forgotten; the gradient computes them again, turns them into
//! their own gradient in place and adds its products with weight and hidden
//! up, chunk after chunk. That makes 4 products where 3 would do with the
//! logits kept. After E. Wijmans et al., "Cut your losses in large-vocabulary
//! language models" (2024), by rows instead of tiles.
//!
//! [`cross_entropy`]: super::cross_entropy

use serde::{Deserialize, Serialize};

use super::cross_entropy::Rows;
use super::matmul::{Matmul, Offsets, Sizes};
use super::{
    Cost, CrossEntropy, CrossEntropyGradient, Emit, LowerContext, Op, Operand, Operation, Tensor64,
    TensorType, ValueId, reduce,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{E, Expression};
use crate::launch::{Capabilities, Launch, StorageId};

/// Most rows of a chunk, however few the classes: one invocation of a GPU adds
/// up a class of all of them for the bias.
const MOST_ROWS: usize = 1024;

/// Inputs: hidden [rows, width] f32, weight [classes, width] f32, labels
/// `[rows]` i32, and optionally a bias `[classes]` f32. Outputs as those of
/// [`CrossEntropy`] of the logits hidden · weightᵀ + bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearCrossEntropy {
    /// The loss of the logits.
    pub loss: CrossEntropy,
    /// Bytes of logits that may exist at a time (at least one row does).
    pub chunk_bytes: u64,
}

/// Inputs: hidden, weight, labels, logsumexp `[rows]`, gradient of the loss
/// `[rows]`, and the bias if there is one. Outputs: the gradients that are
/// wanted, in the order hidden, weight, bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearCrossEntropyGradient {
    /// The op whose gradient this is.
    pub forward: LinearCrossEntropy,
    /// Whether the gradient of hidden, weight, bias is an output.
    pub wanted: [bool; 3],
}

/// Sizes of the op, with the first rows of its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Rows of hidden.
    pub rows: usize,
    /// Columns of hidden and weight.
    pub width: usize,
    /// Rows of the weight.
    pub classes: usize,
    /// Rows of a chunk; the last may have fewer.
    pub chunk_rows: usize,
}

impl Extents {
    /// First row and number of rows of each chunk.
    pub fn chunks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.rows)
            .step_by(self.chunk_rows)
            .map(move |first| (first, self.chunk_rows.min(self.rows - first)))
    }

    fn workspace_bytes(self) -> u64 {
        4 * self.chunk_rows as u64 * self.classes as u64
    }

    /// Sizes of the product that gives the logits of some rows.
    fn logits(self, rows: usize) -> Sizes {
        Sizes { batch: 1, m: rows, n: self.classes, k: self.width }
    }

    fn cost(self, products: u64, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let logits = self.rows as u64 * self.classes as u64;
        let tensors: u64 = inputs.iter().chain(outputs).map(TensorType::bytes).sum();
        // Each chunk goes through the weight again, and logits come and go.
        let again = (self.chunks().count() as u64 - 1) * inputs[1].bytes();
        Cost {
            flops: logits * (2 * self.width as u64 * products + 12),
            bytes: tensors + (again + 8 * logits) * products,
        }
    }
}

impl Default for LinearCrossEntropy {
    fn default() -> Self {
        LinearCrossEntropy::new(CrossEntropy::default())
    }
}

impl LinearCrossEntropy {
    /// With chunks of at most 16 MiB of logits: large enough for products to
    /// run at full speed, and small beside the weights that give them.
    pub fn new(loss: CrossEntropy) -> LinearCrossEntropy {
        LinearCrossEntropy { loss, chunk_bytes: 16 << 20 }
    }

    /// The sizes for inputs that [`Operation::infer`] has accepted. Chunks are
    /// as even as possible.
    pub fn extents(&self, inputs: &[TensorType]) -> Extents {
        let (rows, width) = (inputs[0].shape[0], inputs[0].shape[1]);
        let classes = inputs[1].shape[0];
        let fitting = usize::try_from(self.chunk_bytes / 4).unwrap_or(usize::MAX) / classes;
        let chunks = rows.div_ceil(fitting.clamp(1, MOST_ROWS));
        Extents { rows, width, classes, chunk_rows: rows.div_ceil(chunks) }
    }

    /// Checks hidden, weight and labels, the `others` of one float a row, and
    /// the bias behind them if it is there.
    fn check(&self, op: &str, inputs: &[TensorType], others: usize) -> Result<Extents> {
        self.loss.check()?;
        let without_bias = 3 + others;
        if inputs.len() != without_bias && inputs.len() != without_bias + 1 {
            let (given, most) = (inputs.len(), without_bias + 1);
            let message = format!("takes {without_bias} or {most} inputs, was given {given}");
            return Err(Error::shape(op, message));
        }
        super::expect_dtype(op, &inputs[2], DType::I32)?;
        inputs
            .iter()
            .enumerate()
            .filter(|(k, _)| *k != 2)
            .try_for_each(|(_, t)| super::expect_dtype(op, t, DType::F32))?;
        let ([rows, width], [classes, columns]) = (&inputs[0].shape[..], &inputs[1].shape[..])
        else {
            let message = format!(
                "hidden {:?} and weight {:?}, expected [rows, width] and [classes, width]",
                inputs[0].shape, inputs[1].shape
            );
            return Err(Error::shape(op, message));
        };
        if width != columns {
            let message = format!("hidden has {width} columns, the weight has {columns}");
            return Err(Error::shape(op, message));
        }
        let expected = |k: usize| if k == without_bias { *classes } else { *rows };
        for (k, t) in inputs.iter().enumerate().skip(2) {
            if t.shape != [expected(k)] {
                let message =
                    format!("input {k} of shape {:?}, expected [{}]", t.shape, expected(k));
                return Err(Error::shape(op, message));
            }
        }
        Ok(self.extents(inputs))
    }

    /// The launch of some rows' logits into the workspace.
    fn logits(&self, cx: &LowerContext<'_>, e: Extents, at: &Rows, bias: Option<usize>) -> Launch {
        let mut operands = cx.inputs[..2].to_vec();
        operands.extend(bias.map(|k| cx.inputs[k].clone()));
        let mut op = Matmul::new(false, true);
        if bias.is_some() {
            op.epilogue = sum();
        }
        let out = Operand { storage: workspace(cx), tensor: TensorType::f32([at.rows, e.classes]) };
        let offsets = Offsets { a: at.first * e.width, ..Offsets::default() };
        op.launch(cx, e.logits(at.rows), &operands, &out, offsets)
    }

    /// The logits in float64 by plain loops.
    fn reference_logits(hidden: &Tensor64, weight: &Tensor64, bias: Option<&Tensor64>) -> Tensor64 {
        let (rows, width) = (hidden.shape[0], hidden.shape[1]);
        let classes = weight.shape[0];
        let mut values = Vec::with_capacity(rows * classes);
        for r in 0..rows {
            for c in 0..classes {
                let mut sum = bias.map_or(0.0, |b| b.values[c]);
                for k in 0..width {
                    sum += hidden.values[r * width + k] * weight.values[c * width + k];
                }
                values.push(sum);
            }
        }
        Tensor64 { shape: vec![rows, classes], values, dtype: DType::F32 }
    }
}

fn workspace(cx: &LowerContext<'_>) -> StorageId {
    cx.workspace.expect("chunks need workspace")
}

/// The epilogue that adds an operand.
fn sum() -> Expression {
    Expression::new(vec![DType::F32; 2], &[E::input(0) + E::input(1)])
}

impl Operation for LinearCrossEntropy {
    fn name(&self) -> &'static str {
        "linear_cross_entropy"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let extents = self.check("linear_cross_entropy", inputs, 0)?;
        Ok(vec![TensorType::f32([extents.rows]); 4])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let bias = inputs.get(3).copied();
        let wanted = [wanted[0], wanted[1], bias.is_some() && wanted[3]];
        let Some(g) = gradients[0].filter(|_| wanted.contains(&true)) else {
            return Ok(vec![None; inputs.len()]);
        };
        let op = LinearCrossEntropyGradient { forward: self.clone(), wanted };
        let mut operands = vec![inputs[0], inputs[1], inputs[2], outputs[2], g];
        operands.extend(bias);
        let made = cx.emit(Op::LinearCrossEntropyGradient(op), &operands)?;
        let mut made = made.into_iter();
        let [hidden, weight, bias] = wanted.map(|w| if w { made.next() } else { None });
        Ok([hidden, weight, None, bias][..inputs.len()].to_vec())
    }

    fn differentiable(&self, j: usize) -> bool {
        j == 0
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        self.extents(inputs).cost(1, inputs, outputs)
    }

    fn workspace_bytes(&self, inputs: &[TensorType], _capabilities: &Capabilities) -> u64 {
        self.extents(inputs).workspace_bytes()
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let e = self.extents(&types(cx));
        let inputs = [workspace(cx), cx.inputs[2].storage];
        let outputs = [0, 1, 2, 3].map(|j| cx.outputs[j].storage);
        let bias = (cx.inputs.len() > 3).then_some(3);
        e.chunks()
            .flat_map(|(first, rows)| {
                let at = Rows { rows, classes: e.classes, first };
                let loss = self.loss.launch(cx.capabilities, &at, inputs, outputs);
                [self.logits(cx, e, &at, bias), loss]
            })
            .collect()
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let logits = Self::reference_logits(&inputs[0], &inputs[1], inputs.get(3));
        self.loss.reference(&[logits, inputs[2].clone()])
    }
}

fn types(cx: &LowerContext<'_>) -> Vec<TensorType> {
    cx.inputs.iter().map(|o| o.tensor.clone()).collect()
}

impl LinearCrossEntropyGradient {
    /// Which output is the gradient of hidden, weight, bias.
    pub fn places(&self) -> [Option<usize>; 3] {
        let place = |k: usize| self.wanted[..k].iter().filter(|w| **w).count();
        [0, 1, 2].map(|k| self.wanted[k].then(|| place(k)))
    }
}

impl Operation for LinearCrossEntropyGradient {
    fn name(&self) -> &'static str {
        "linear_cross_entropy_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "linear_cross_entropy_gradient";
        self.forward.check(op, inputs, 2)?;
        if self.wanted[2] && inputs.len() < 6 {
            return Err(Error::shape(op, "a gradient of the bias is wanted, but there is no bias"));
        }
        let all = [Some(0), Some(1), (inputs.len() > 5).then_some(5)];
        let wanted = all.into_iter().zip(self.wanted).filter(|(_, wanted)| *wanted);
        Ok(wanted.filter_map(|(k, _)| Some(inputs[k?].clone())).collect())
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let products = 1 + self.wanted[..2].iter().filter(|w| **w).count() as u64;
        self.forward.extents(inputs).cost(products, inputs, outputs)
    }

    fn workspace_bytes(&self, inputs: &[TensorType], _capabilities: &Capabilities) -> u64 {
        self.forward.extents(inputs).workspace_bytes()
    }

    /// The gradient of hidden may replace it: a chunk's rows are written after
    /// they have been read for the last time.
    fn may_alias(&self, _inputs: &[TensorType], k: usize, j: usize) -> bool {
        k == 0 && self.places()[0] == Some(j)
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let e = self.forward.extents(&types(cx));
        let [hidden, weight, bias] = self.places().map(|j| j.map(|j| &cx.outputs[j]));
        let storage = workspace(cx);
        let with_bias = (cx.inputs.len() > 5).then_some(5);
        let mut out = Vec::new();
        for (first, rows) in e.chunks() {
            let at = Rows { rows, classes: e.classes, first };
            let logits = Operand { storage, tensor: TensorType::f32([rows, e.classes]) };
            out.push(self.forward.logits(cx, e, &at, with_bias));
            let [labels, logsumexp, gradient] = [2, 3, 4].map(|k| cx.inputs[k].storage);
            let inputs = [storage, labels, logsumexp, gradient];
            out.push(self.forward.loss.launch_gradient(cx.capabilities, &at, inputs, storage));
            if let Some(bias) = bias {
                let sizes = [rows, e.classes];
                let sums = (storage, sizes, bias.storage, first > 0);
                out.push(reduce::column_sums(cx.capabilities, sums.0, sums.1, sums.2, sums.3));
            }
            if let Some(weight) = weight {
                // Pᵀ · hidden, added to what the chunks before have given.
                let mut op = Matmul::new(true, false);
                let mut operands = vec![logits.clone(), cx.inputs[0].clone()];
                if first > 0 {
                    op.epilogue = sum();
                    operands.push(weight.clone());
                }
                let sizes = Sizes { batch: 1, m: e.classes, n: e.width, k: rows };
                let offsets = Offsets { b: first * e.width, ..Offsets::default() };
                out.push(op.launch(cx, sizes, &operands, weight, offsets));
            }
            if let Some(hidden) = hidden {
                // P · weight, last: hidden may be overwritten.
                let to =
                    Operand { storage: hidden.storage, tensor: TensorType::f32([rows, e.width]) };
                let sizes = Sizes { batch: 1, m: rows, n: e.width, k: e.classes };
                let offsets = Offsets { out: first * e.width, ..Offsets::default() };
                let operands = [logits, cx.inputs[1].clone()];
                out.push(Matmul::new(false, false).launch(cx, sizes, &operands, &to, offsets));
            }
        }
        out
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let (hidden, weight) = (&inputs[0], &inputs[1]);
        let logits = LinearCrossEntropy::reference_logits(hidden, weight, inputs.get(5));
        let (rows, classes) = (logits.shape[0], logits.shape[1]);
        let width = hidden.shape[1];
        let op = CrossEntropyGradient { forward: self.forward.loss.clone() };
        let p =
            &op.reference(&[logits, inputs[2].clone(), inputs[3].clone(), inputs[4].clone()])[0];
        let zeros = |shape: &[usize]| Tensor64 {
            shape: shape.to_vec(),
            values: vec![0.0; crate::shape::numel(shape)],
            dtype: DType::F32,
        };
        let mut all = [zeros(&[rows, width]), zeros(&[classes, width]), zeros(&[classes])];
        for r in 0..rows {
            for c in 0..classes {
                let p = p.values[r * classes + c];
                for k in 0..width {
                    all[0].values[r * width + k] += p * weight.values[c * width + k];
                    all[1].values[c * width + k] += p * hidden.values[r * width + k];
                }
                all[2].values[c] += p;
            }
        }
        let all = all.into_iter().zip(self.wanted);
        all.filter(|(_, wanted)| *wanted).map(|(t, _)| t).collect()
    }
}
