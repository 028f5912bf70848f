//! Elementwise expressions: `map`, activations, dropout.

use super::{Graph, Leaf, Mode, RNG, RNG_WORDS};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{E, Expression, Scalar};
use crate::ops::{Emit, Map, Op, TensorType, ValueId};

impl Graph {
    /// An elementwise expression over `inputs`; `f` gets the handles of the
    /// inputs and gives one output.
    pub fn map(&mut self, inputs: &[ValueId], f: impl FnOnce(&[E]) -> E) -> Result<ValueId> {
        Ok(self.map_many(inputs, |x| vec![f(x)])?[0])
    }

    /// [`Graph::map`] with any number of outputs.
    pub fn map_many(
        &mut self,
        inputs: &[ValueId],
        f: impl FnOnce(&[E]) -> Vec<E>,
    ) -> Result<Vec<ValueId>> {
        let handles: Vec<E> = (0..inputs.len()).map(E::input).collect();
        let types: Vec<TensorType> = inputs.iter().map(|i| self.tensor_type(*i)).collect();
        let dtypes = types.iter().map(|t| t.dtype).collect();
        let map = Map::over(Expression::new(dtypes, &f(&handles)), &types)?;
        self.emit(Op::Map(map), inputs)
    }

    /// max(x, 0).
    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].max(0.0))
    }

    /// x·Φ(x); see [`E::gelu`].
    pub fn gelu(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].gelu())
    }

    /// [`E::gelu_tanh`].
    pub fn gelu_tanh(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].gelu_tanh())
    }

    /// x·sigmoid(x).
    pub fn silu(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].silu())
    }

    /// 1 / (1 + e^−x).
    pub fn sigmoid(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].sigmoid())
    }

    /// Hyperbolic tangent.
    pub fn tanh(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].tanh())
    }

    /// a + b, broadcast.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.map(&[a, b], |x| &x[0] + &x[1])
    }

    /// a·b, broadcast.
    pub fn multiply(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.map(&[a, b], |x| &x[0] * &x[1])
    }

    /// A tensor of one value everywhere.
    pub fn constant(&mut self, shape: &[usize], value: f32) -> Result<ValueId> {
        let expression = Expression::new(vec![], &[E::constant(value)]);
        Ok(self.emit(Op::Map(Map { expression, shape: shape.to_vec() }), &[])?[0])
    }

    /// A u8, i32 or u32 tensor as f32.
    pub fn to_f32(&mut self, x: ValueId) -> Result<ValueId> {
        self.map(&[x], |x| x[0].cast(Scalar::F32))
    }

    /// Dropout with drop probability `p`; `batch` is the number of items of
    /// the micro-batch, along which `x` varies first. The mask depends on the
    /// element's place in the whole batch, not on the micro-batch.
    pub fn dropout(&mut self, x: ValueId, p: f32, batch: usize) -> Result<ValueId> {
        if !(0.0..1.0).contains(&p) {
            let message = format!("{p} is outside [0, 1)");
            return Err(Error::Setting { name: "dropout", message });
        }
        if self.mode == Mode::Evaluate || p == 0.0 {
            return Ok(x);
        }
        let numel = self.value(x).tensor.numel();
        if batch == 0
            || !numel.is_multiple_of(batch)
            || self.shape(x).first().is_none_or(|d| d % batch != 0)
        {
            let message =
                format!("shape {:?} does not begin with a batch of {batch}", self.shape(x));
            return Err(Error::shape(self.scoped_name("dropout"), message));
        }
        let rng = self.leaf(RNG, TensorType::new([RNG_WORDS], DType::U32), Leaf::Input)?;
        let stream = self.streams;
        self.streams += 1;
        self.map(&[x, rng], |i| {
            let drop = E::random(1, stream, numel / batch).unit().less(p);
            drop.select(0.0, &i[0] * (1.0 / (1.0 - p)))
        })
    }
}
