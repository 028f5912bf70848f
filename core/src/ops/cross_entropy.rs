//! `cross_entropy`: softmax and negative log-likelihood in one, with integer
//! labels, an ignored label and label smoothing, as PyTorch defines them.
//!
//! For a row of logits l with label y and smoothing s over C classes:
//! loss = logsumexp(l) − (1 − s)·`l[y]` − (s / C)·Σ l.

use serde::{Deserialize, Serialize};

use super::{Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Capabilities, Launch, StorageId};

/// Invocations of a workgroup, which takes a row.
pub const WORKGROUP: u32 = 64;

/// Inputs: logits [rows, classes] f32, labels `[rows]` i32. Outputs, each
/// `[rows]` f32: loss (0 for ignored rows), weight (1, or 0 for ignored rows),
/// logsumexp, and correct (1 where the label's logit is the first largest and
/// the row is not ignored). A label outside the classes gives a NaN loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropy {
    /// Rows with this label count for nothing.
    pub ignore_index: i32,
    /// Share of the target spread evenly over all classes, in [0, 1).
    pub label_smoothing: f32,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        CrossEntropy { ignore_index: -100, label_smoothing: 0.0 }
    }
}

/// Inputs: logits, labels, logsumexp, gradient of the loss `[rows]`. Output: the
/// gradient of the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropyGradient {
    /// The op whose gradient this is.
    pub forward: CrossEntropy,
}

/// Rows of logits that a launch works on.
pub(super) struct Rows {
    /// Rows and classes of the logits, which start at their storage's start.
    pub rows: usize,
    pub classes: usize,
    /// The first row's place in the labels and in all else that is `[rows]`.
    pub first: usize,
}

impl CrossEntropy {
    /// Checks the settings.
    pub(super) fn check(&self) -> Result<()> {
        if (0.0..1.0).contains(&self.label_smoothing) {
            return Ok(());
        }
        let message = format!("{} is outside [0, 1)", self.label_smoothing);
        Err(Error::Setting { name: "label_smoothing", message })
    }

    /// Parameters: rows, classes, ignore_index, bits of label_smoothing, first
    /// row.
    fn parameters(&self, at: &Rows) -> Vec<u32> {
        vec![
            at.rows as u32,
            at.classes as u32,
            self.ignore_index as u32,
            self.label_smoothing.to_bits(),
            at.first as u32,
        ]
    }

    /// Loss, weight, logsumexp and correct of some rows.
    pub(super) fn launch(
        &self,
        capabilities: &Capabilities,
        at: &Rows,
        [logits, labels]: [StorageId; 2],
        outputs: [StorageId; 4],
    ) -> Launch {
        let mut bound = map::Bindings::default();
        bound.bind_named("logits", logits, DType::F32);
        bound.bind_named("labels", labels, DType::I32);
        for (name, out) in ["loss", "weight", "logsumexp", "correct"].iter().zip(outputs) {
            bound.bind_named(name, out, DType::F32);
        }
        bound.launch(
            "cross_entropy",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            capabilities.fold_groups(at.rows as u64),
            self.parameters(at),
        )
    }

    /// Gradient of some rows of logits: (softmax − target) · gradient, from
    /// logits, labels, logsumexp and gradient into `out`. In place, `logits`
    /// and `out` are two bindings of one storage: each invocation reads its
    /// element, then writes it.
    pub(super) fn launch_gradient(
        &self,
        capabilities: &Capabilities,
        at: &Rows,
        [logits, labels, logsumexp, gradient]: [StorageId; 4],
        out: StorageId,
    ) -> Launch {
        let mut bound = map::Bindings::default();
        bound.bind_named("logits", logits, DType::F32);
        bound.bind_named("labels", labels, DType::I32);
        bound.bind_named("logsumexp", logsumexp, DType::F32);
        bound.bind_named("gradient", gradient, DType::F32);
        bound.bind_named("out", out, DType::F32);
        let groups = ((at.rows * at.classes) as u64).div_ceil(u64::from(WORKGROUP));
        bound.launch(
            "cross_entropy_gradient",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![],
            capabilities.fold_groups(groups),
            self.parameters(at),
        )
    }
}

fn check(op: &str, inputs: &[TensorType]) -> Result<(usize, usize)> {
    super::expect_dtype(op, &inputs[0], DType::F32)?;
    super::expect_dtype(op, &inputs[1], DType::I32)?;
    let [rows, classes] = inputs[0].shape[..] else {
        return Err(Error::shape(
            op,
            format!("logits of shape {:?}, expected [rows, classes]", inputs[0].shape),
        ));
    };
    if inputs[1].shape != [rows] {
        return Err(Error::shape(
            op,
            format!("labels of shape {:?}, expected [{rows}]", inputs[1].shape),
        ));
    }
    Ok((rows, classes))
}

impl Operation for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("cross_entropy", inputs, 2)?;
        let (rows, _) = check("cross_entropy", inputs)?;
        self.check()?;
        Ok(vec![TensorType::f32([rows]); 4])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0].filter(|_| wanted[0]) else { return Ok(vec![None; 2]) };
        let op = Op::CrossEntropyGradient(CrossEntropyGradient { forward: self.clone() });
        Ok(vec![Some(cx.emit(op, &[inputs[0], inputs[1], outputs[2], g])?[0]), None])
    }

    fn differentiable(&self, j: usize) -> bool {
        j == 0
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost {
            flops: inputs[0].numel() as u64 * 12,
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let [rows, classes] = cx.inputs[0].tensor.shape[..] else { unreachable!("was inferred") };
        let inputs = [0, 1].map(|k| cx.inputs[k].storage);
        let outputs = [0, 1, 2, 3].map(|j| cx.outputs[j].storage);
        vec![self.launch(cx.capabilities, &Rows { rows, classes, first: 0 }, inputs, outputs)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let (rows, classes) = (inputs[0].shape[0], inputs[0].shape[1]);
        let s = f64::from(self.label_smoothing);
        let mut out = [const { Vec::new() }; 4];
        for r in 0..rows {
            let l = &inputs[0].values[r * classes..][..classes];
            let label = inputs[1].values[r] as i64;
            let max = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = max + l.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            let (mut loss, mut weight, mut correct) = (0.0, 0.0, 0.0);
            if label != i64::from(self.ignore_index) {
                weight = 1.0;
                loss = f64::NAN;
                if (0..classes as i64).contains(&label) {
                    let y = label as usize;
                    loss = lse - (1.0 - s) * l[y];
                    if s != 0.0 {
                        loss -= s / classes as f64 * l.iter().sum::<f64>();
                    }
                    correct = f64::from(u8::from(l.iter().position(|x| *x == max) == Some(y)));
                }
            }
            for (o, v) in out.iter_mut().zip([loss, weight, lse, correct]) {
                o.push(v);
            }
        }
        out.into_iter()
            .map(|values| Tensor64 { shape: vec![rows], values, dtype: DType::F32 })
            .collect()
    }
}

impl Operation for CrossEntropyGradient {
    fn name(&self) -> &'static str {
        "cross_entropy_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("cross_entropy_gradient", inputs, 4)?;
        let (rows, _) = check("cross_entropy_gradient", inputs)?;
        for t in &inputs[2..] {
            super::expect_dtype("cross_entropy_gradient", t, DType::F32)?;
            if t.shape != [rows] {
                return Err(Error::shape(
                    "cross_entropy_gradient",
                    format!("shape {:?}, expected [{rows}]", t.shape),
                ));
            }
        }
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost {
            flops: outputs[0].numel() as u64 * 12,
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn may_alias(&self, _inputs: &[TensorType], k: usize, _j: usize) -> bool {
        k == 0
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let [rows, classes] = cx.inputs[0].tensor.shape[..] else { unreachable!("was inferred") };
        let inputs = [0, 1, 2, 3].map(|k| cx.inputs[k].storage);
        let (at, out) = (Rows { rows, classes, first: 0 }, cx.outputs[0].storage);
        vec![self.forward.launch_gradient(cx.capabilities, &at, inputs, out)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let (rows, classes) = (inputs[0].shape[0], inputs[0].shape[1]);
        let s = f64::from(self.forward.label_smoothing);
        let mut values = Vec::with_capacity(rows * classes);
        for r in 0..rows {
            let label = inputs[1].values[r] as i64;
            for c in 0..classes {
                if label == i64::from(self.forward.ignore_index) {
                    values.push(0.0);
                    continue;
                }
                let p = (inputs[0].values[r * classes + c] - inputs[2].values[r]).exp();
                let target =
                    f64::from(u8::from(label == c as i64)) * (1.0 - s) + s / classes as f64;
                values.push((p - target) * inputs[3].values[r]);
            }
        }
        vec![Tensor64 { shape: inputs[0].shape.clone(), values, dtype: DType::F32 }]
    }
}
