//! Losses.

use super::{Graph, Loss};
use crate::error::Result;
use crate::ops::{CrossEntropy, Emit, Op, ValueId};

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
}
