//! Losses.

use super::{Graph, Loss};
use crate::error::Result;
use crate::ops::{CrossEntropy, Emit, LinearCrossEntropy, Op, ValueId};

impl Graph {
    /// Cross-entropy of logits [rows, classes] with i32 labels `[rows]`.
    pub fn cross_entropy(
        &mut self,
        logits: ValueId,
        labels: ValueId,
        op: CrossEntropy,
    ) -> Result<Loss> {
        let out = self.emit(Op::CrossEntropy(op), &[logits, labels])?;
        Ok(Loss { per_item: out[0], weight: out[1], correct: Some(out[3]) })
    }

    /// Cross-entropy of the logits hidden · weightᵀ + bias, which never exist
    /// whole: hidden [rows, width], weight [classes, width], bias `[classes]`,
    /// i32 labels `[rows]`.
    pub fn linear_cross_entropy(
        &mut self,
        hidden: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
        labels: ValueId,
        op: CrossEntropy,
    ) -> Result<Loss> {
        let op = Op::LinearCrossEntropy(LinearCrossEntropy::new(op));
        let mut inputs = vec![hidden, weight, labels];
        inputs.extend(bias);
        let out = self.emit(op, &inputs)?;
        Ok(Loss { per_item: out[0], weight: out[1], correct: Some(out[3]) })
    }
}
