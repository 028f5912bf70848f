//! Tables.

use super::Graph;
use crate::error::Result;
use crate::ops::{Embedding, Emit, Op, ValueId};

impl Graph {
    /// Rows of a table by i32 index.
    pub fn embedding(&mut self, table: ValueId, indices: ValueId) -> Result<ValueId> {
        Ok(self.emit(Op::Embedding(Embedding), &[table, indices])?[0])
    }
}
