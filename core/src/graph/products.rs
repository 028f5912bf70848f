//! Matrix products.

use super::Graph;
use crate::error::Result;
use crate::ops::{Emit, Matmul, Op, ValueId};
use crate::shape;

impl Graph {
    /// Matrix product; a transposed operand is stored with its last two
    /// dimensions exchanged. A matrix on the right serves all of A's batch.
    pub fn matmul(
        &mut self,
        a: ValueId,
        b: ValueId,
        transpose_a: bool,
        transpose_b: bool,
    ) -> Result<ValueId> {
        let op = Op::Matmul(Matmul::new(transpose_a, transpose_b));
        let (sa, rank_b) = (self.shape(a).to_vec(), self.shape(b).len());
        if rank_b == 2 && sa.len() > 2 && !transpose_a {
            let (rows, k) = (shape::numel(&sa[..sa.len() - 1]), sa[sa.len() - 1]);
            let flat = self.reshape(a, &[rows, k])?;
            let y = self.emit(op, &[flat, b])?[0];
            let mut out = sa[..sa.len() - 1].to_vec();
            out.push(self.shape(y)[1]);
            return self.reshape(y, &out);
        }
        Ok(self.emit(op, &[a, b])?[0])
    }
}
