//! Changes of layout.

use super::Graph;
use crate::error::Result;
use crate::ops::{Concat, Emit, Op, Pad, Permute, Reshape, Slice, ValueId};

impl Graph {
    /// The same elements under another shape.
    pub fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        Ok(self.emit(Op::Reshape(Reshape { shape: shape.to_vec() }), &[x])?[0])
    }

    /// Reorders dimensions.
    pub fn permute(&mut self, x: ValueId, order: &[usize]) -> Result<ValueId> {
        Ok(self.emit(Op::Permute(Permute { order: order.to_vec() }), &[x])?[0])
    }

    /// A box of a tensor.
    pub fn slice(&mut self, x: ValueId, starts: &[usize], ends: &[usize]) -> Result<ValueId> {
        let op = Slice { starts: starts.to_vec(), ends: ends.to_vec() };
        Ok(self.emit(Op::Slice(op), &[x])?[0])
    }

    /// Zeros around a tensor.
    pub fn pad(&mut self, x: ValueId, before: &[usize], after: &[usize]) -> Result<ValueId> {
        let op = Pad { before: before.to_vec(), after: after.to_vec() };
        Ok(self.emit(Op::Pad(op), &[x])?[0])
    }

    /// Tensors one after another along an axis.
    pub fn concat(&mut self, xs: &[ValueId], axis: usize) -> Result<ValueId> {
        Ok(self.emit(Op::Concat(Concat { axis }), xs)?[0])
    }
}
