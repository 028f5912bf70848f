//! Attention and positions.

use super::Graph;
use crate::error::Result;
use crate::expression::E;
use crate::ops::attention::LARGEST_HEAD;
use crate::ops::{Attention, Emit, Op, Rope, ValueId};

impl Graph {
    /// Attention of q [B, L, H, D] over k and v [B, S, G, D]: [B, L, H, D]. G
    /// divides H. `key_mask` [B, S] i32 is 0 where a key is not to be seen; a
    /// query that sees none gives zeros.
    ///
    /// Memory is linear in L and S for D up to [`LARGEST_HEAD`]; larger heads
    /// are composed of products and a softmax, whose B·H·L·S scores are kept.
    pub fn attention(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        key_mask: Option<ValueId>,
        attention: Attention,
    ) -> Result<ValueId> {
        if self.shape(q).last().is_some_and(|d| *d > LARGEST_HEAD) {
            return self.composed_attention(q, k, v, key_mask, &attention);
        }
        let mut inputs = vec![q, k, v];
        inputs.extend(key_mask);
        Ok(self.emit(Op::Attention(attention), &inputs)?[0])
    }

    fn composed_attention(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        key_mask: Option<ValueId>,
        attention: &Attention,
    ) -> Result<ValueId> {
        let types = [q, k, v].map(|x| self.tensor_type(x));
        let label = self.scoped_name("attention");
        let e = attention.check(&label, &types)?;
        Attention::check_mask(&label, e, key_mask.map(|m| self.tensor_type(m)).as_ref())?;
        let (batch, group) = (e.batch * e.key_heads, e.group());
        let by_head = |g: &mut Graph, x: ValueId, rows: usize| {
            let x = g.transpose(x, 1, 2)?;
            g.reshape(x, &[batch, rows, e.head_size])
        };
        let q = by_head(self, q, group * e.queries)?;
        let (k, v) = (by_head(self, k, e.keys)?, by_head(self, v, e.keys)?);
        let scores = self.matmul(q, k, false, true)?;
        let scores = self.reshape(scores, &[e.batch, e.heads, e.queries, e.keys])?;
        // Of operands seen, those that are 0 hide.
        let mut hides = Vec::new();
        if let Some(mask) = key_mask {
            hides.push(self.reshape(mask, &[e.batch, 1, 1, e.keys])?);
        }
        if attention.causal {
            let places = self.iota(e.queries)?;
            let rows = self.reshape(places, &[e.queries, 1])?;
            hides.push(
                self.map(&[rows, places], |x| x[1].less_equal(&x[0]).select(E::i32(1), E::i32(0)))?,
            );
        }
        let scale = attention.scale;
        let hidden = |g: &mut Graph, x: ValueId, scale: f32, otherwise: f32| {
            let mut inputs = vec![x];
            inputs.extend(&hides);
            g.map(&inputs, |x| {
                let seen = |y: E, m: &E| m.equal(E::i32(0)).select(otherwise, y);
                x[1..].iter().fold(&x[0] * scale, seen)
            })
        };
        let scores = hidden(self, scores, scale, f32::MIN / 2.0)?;
        let probabilities = self.softmax(scores, 3)?;
        // A row that sees nothing would have the mean of all values.
        let probabilities = hidden(self, probabilities, 1.0, 0.0)?;
        let flat = self.reshape(probabilities, &[batch, group * e.queries, e.keys])?;
        let y = self.matmul(flat, v, false, false)?;
        let y = self.reshape(y, &[e.batch, e.heads, e.queries, e.head_size])?;
        self.transpose(y, 1, 2)
    }

    /// Rotary position embedding of x [B, L, H, D].
    pub fn rope(&mut self, x: ValueId, rope: Rope) -> Result<ValueId> {
        Ok(self.emit(Op::Rope(rope), &[x])?[0])
    }
}
