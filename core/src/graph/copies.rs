//! Changes of layout.

use super::Graph;
use crate::error::{Error, Result};
use crate::expression::{E, Expression};
use crate::ops::{Concat, Emit, Map, Op, Pad, Permute, Reshape, Slice, Split, ValueId};

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

    /// A tensor cut along an axis into pieces of these sizes, which add up to
    /// the axis.
    pub fn split(&mut self, x: ValueId, axis: usize, sizes: &[usize]) -> Result<Vec<ValueId>> {
        self.emit(Op::Split(Split { axis, sizes: sizes.to_vec() }), &[x])
    }

    /// A tensor cut along an axis into at most `count` pieces: all as large as
    /// the first but the last, which may be smaller.
    pub fn chunk(&mut self, x: ValueId, count: usize, axis: usize) -> Result<Vec<ValueId>> {
        let size = self.size(x, axis, "chunk")?;
        if count == 0 {
            return Err(Error::Setting { name: "chunks", message: "must be at least 1".into() });
        }
        let piece = size.div_ceil(count);
        let sizes: Vec<usize> =
            (0..size).step_by(piece).map(|start| piece.min(size - start)).collect();
        self.split(x, axis, &sizes)
    }

    /// Exchanges two dimensions.
    pub fn transpose(&mut self, x: ValueId, a: usize, b: usize) -> Result<ValueId> {
        self.size(x, a.max(b), "transpose")?;
        let mut order: Vec<usize> = (0..self.shape(x).len()).collect();
        order.swap(a, b);
        self.permute(x, &order)
    }

    /// Joins all dimensions from `from` on.
    pub fn flatten(&mut self, x: ValueId, from: usize) -> Result<ValueId> {
        self.size(x, from, "flatten")?;
        let shape = self.shape(x);
        let mut to = shape[..from].to_vec();
        to.push(shape[from..].iter().product());
        self.reshape(x, &to)
    }

    /// Drops a dimension of size 1.
    pub fn squeeze(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let size = self.size(x, axis, "squeeze")?;
        if size != 1 {
            let message = format!("axis {axis} of {:?} is not of size 1", self.shape(x));
            return Err(Error::shape(self.scoped_name("squeeze"), message));
        }
        let mut to = self.shape(x).to_vec();
        to.remove(axis);
        self.reshape(x, &to)
    }

    /// Adds a dimension of size 1 that becomes dimension `axis`.
    pub fn unsqueeze(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut to = self.shape(x).to_vec();
        if axis > to.len() {
            let message = format!("axis {axis} cannot be added to {to:?}");
            return Err(Error::shape(self.scoped_name("unsqueeze"), message));
        }
        to.insert(axis, 1);
        self.reshape(x, &to)
    }

    /// Tensors of one shape one after another along a new dimension `axis`.
    pub fn stack(&mut self, xs: &[ValueId], axis: usize) -> Result<ValueId> {
        let mut parts = Vec::new();
        for x in xs {
            parts.push(self.unsqueeze(*x, axis)?);
        }
        self.concat(&parts, axis)
    }

    /// Repeats a tensor along dimensions of size 1 and along new leading ones.
    pub fn expand(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        let expression = Expression::new(vec![self.tensor_type(x).dtype], &[E::input(0)]);
        Ok(self.emit(Op::Map(Map { expression, shape: shape.to_vec() }), &[x])?[0])
    }

    /// The size of a dimension, or a typed error for one that is not there.
    fn size(&self, x: ValueId, axis: usize, op: &str) -> Result<usize> {
        self.shape(x).get(axis).copied().ok_or_else(|| {
            let message = format!("axis {axis} of shape {:?}", self.shape(x));
            Error::shape(self.scoped_name(op), message)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::graph::{Graph, Mode};

    #[test]
    fn shapes_are_those_of_pytorch() {
        let mut g = Graph::new(Mode::Train);
        let x = g.input("x", &[2, 7, 1, 5], DType::F32).expect("fine");
        let y = g.input("y", &[2, 7, 1, 5], DType::F32).expect("fine");
        let sizes = |g: &Graph, pieces: &[crate::ops::ValueId]| -> Vec<usize> {
            pieces.iter().map(|p| g.shape(*p)[1]).collect()
        };
        for (count, expected) in [(1, vec![7]), (3, vec![3, 3, 1]), (4, vec![2, 2, 2, 1])] {
            let pieces = g.chunk(x, count, 1).expect("fine");
            assert_eq!(sizes(&g, &pieces), expected);
        }
        // Fewer than asked for.
        let pieces = g.chunk(x, 5, 1).expect("fine");
        assert_eq!(sizes(&g, &pieces), [2, 2, 2, 1]);
        assert_eq!(g.chunk(x, 9, 1).expect("fine").len(), 7);
        let made = [
            (g.transpose(x, 3, 1), vec![2, 5, 1, 7]),
            (g.flatten(x, 1), vec![2, 35]),
            (g.squeeze(x, 2), vec![2, 7, 5]),
            (g.unsqueeze(x, 4), vec![2, 7, 1, 5, 1]),
            (g.stack(&[x, y, x], 1), vec![2, 3, 7, 1, 5]),
            (g.expand(x, &[3, 2, 7, 4, 5]), vec![3, 2, 7, 4, 5]),
        ];
        for (value, shape) in made {
            assert_eq!(g.shape(value.expect("fine")), shape);
        }
    }

    #[test]
    fn axes_that_are_not_there_are_typed_errors() {
        let mut g = Graph::new(Mode::Train);
        let x = g.input("x", &[2, 3], DType::F32).expect("fine");
        let failed = [
            g.transpose(x, 0, 2).map(|_| ()),
            g.flatten(x, 2).map(|_| ()),
            g.squeeze(x, 0).map(|_| ()),
            g.squeeze(x, 2).map(|_| ()),
            g.unsqueeze(x, 3).map(|_| ()),
            g.stack(&[], 0).map(|_| ()),
            g.expand(x, &[2, 4]).map(|_| ()),
            g.chunk(x, 2, 2).map(|_| ()),
            g.split(x, 0, &[1, 2]).map(|_| ()),
            g.split(x, 0, &[2, 0]).map(|_| ()),
            g.split(x, 0, &[usize::MAX, 3]).map(|_| ()),
        ];
        for result in failed {
            assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
        }
        assert!(matches!(g.chunk(x, 0, 1), Err(Error::Setting { .. })));
    }
}
