//! Attention and positions.

use super::Graph;
use crate::error::Result;
use crate::ops::{Attention, Emit, Op, Rope, ValueId};

impl Graph {
    /// Attention of q [B, L, H, D] over k and v [B, S, G, D]: [B, L, H, D]. G
    /// divides H; D is at most 128. `key_mask` [B, S] i32 is 0 where a key is
    /// not to be seen; a query that sees none gives zeros.
    pub fn attention(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        key_mask: Option<ValueId>,
        attention: Attention,
    ) -> Result<ValueId> {
        let mut inputs = vec![q, k, v];
        inputs.extend(key_mask);
        Ok(self.emit(Op::Attention(attention), &inputs)?[0])
    }

    /// Rotary position embedding of x [B, L, H, D].
    pub fn rope(&mut self, x: ValueId, rope: Rope) -> Result<ValueId> {
        Ok(self.emit(Op::Rope(rope), &[x])?[0])
    }
}
