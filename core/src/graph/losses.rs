//! Losses: per item (or row) a loss and its weight in the mean.

use super::{Graph, Init, Leaf, Loss};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Class;
use crate::ops::{CrossEntropy, Emit, LinearCrossEntropy, Op, TensorType, ValueId};

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

    /// Cross-entropy of logits [rows, classes] with distributions of the same
    /// shape: −Σ t·log softmax(l), as for distillation and mixed labels.
    pub fn soft_cross_entropy(&mut self, logits: ValueId, targets: ValueId) -> Result<Loss> {
        self.same_shape("soft_cross_entropy", logits, targets)?;
        let [rows, _] = self.shape(logits)[..] else {
            let message = format!("shape {:?}, expected [rows, classes]", self.shape(logits));
            return Err(Error::shape(self.scoped_name("soft_cross_entropy"), message));
        };
        // Any shift will do, so that no gradient need pass the maximum.
        let largest = self.max(logits, &[1])?;
        let largest = self.stop_gradient(largest)?;
        let largest = self.reshape(largest, &[rows, 1])?;
        let shifted = self.map(&[logits, largest], |x| &x[0] - &x[1])?;
        let powers = self.map(&[shifted], |x| x[0].exp())?;
        let sum = self.sum(powers, &[1])?;
        let logsum = self.map(&[sum], |x| x[0].log())?;
        let logsum = self.reshape(logsum, &[rows, 1])?;
        let terms = self.map(&[shifted, logsum, targets], |x| &x[2] * (&x[1] - &x[0]))?;
        let per_item = self.sum(terms, &[1])?;
        self.unweighted(per_item)
    }

    /// The mean of (prediction − target)² of each item.
    pub fn mean_squared_error(&mut self, prediction: ValueId, target: ValueId) -> Result<Loss> {
        self.same_shape("mean_squared_error", prediction, target)?;
        let square = self.map(&[prediction, target], |x| {
            let d = &x[0] - &x[1];
            &d * &d
        })?;
        self.item_means(square)
    }

    /// The mean of log(1 + eˡ) − t·l of each item: the cross-entropy of
    /// sigmoid(l) with t in [0, 1].
    pub fn binary_cross_entropy_with_logits(
        &mut self,
        logits: ValueId,
        targets: ValueId,
    ) -> Result<Loss> {
        self.same_shape("binary_cross_entropy_with_logits", logits, targets)?;
        let terms = self.map(&[logits, targets], |x| x[0].softplus() - &x[1] * &x[0])?;
        self.item_means(terms)
    }

    /// 1 − Dice of each item, the mean over channels of
    /// (2·Σ p·t + s) / (Σ p + Σ t + s); probabilities and targets
    /// [items, channels, …], as F. Milletari, N. Navab, S. Ahmadi, "V-Net", 2016
    /// (there with squares).
    pub fn dice_loss(
        &mut self,
        probabilities: ValueId,
        targets: ValueId,
        smoothing: f32,
    ) -> Result<Loss> {
        self.same_shape("dice_loss", probabilities, targets)?;
        let rank = self.shape(probabilities).len();
        if rank < 3 {
            let message =
                format!("shape {:?}, expected [items, channels, …]", self.shape(probabilities));
            return Err(Error::shape(self.scoped_name("dice_loss"), message));
        }
        let axes: Vec<usize> = (2..rank).collect();
        let products = self.multiply(probabilities, targets)?;
        let both = self.add(probabilities, targets)?;
        let (common, size) = (self.sum(products, &axes)?, self.sum(both, &axes)?);
        let loss =
            self.map(&[common, size], |x| 1.0 - (&x[0] * 2.0 + smoothing) / (&x[1] + smoothing))?;
        self.item_means(loss)
    }

    /// i32 labels [items, …] as f32 [items, classes, …] of ones and zeros.
    pub fn one_hot(&mut self, labels: ValueId, classes: usize) -> Result<ValueId> {
        let shape = self.shape(labels).to_vec();
        let Some((items, rest)) = shape.split_first() else {
            return Err(Error::shape(self.scoped_name("one_hot"), "a scalar has no items"));
        };
        let positions = crate::shape::numel(rest);
        let labels = self.reshape(labels, &[*items, 1, positions])?;
        let numbers = self.iota(classes)?;
        let numbers = self.reshape(numbers, &[classes, 1])?;
        let hot = self.map(&[labels, numbers], |x| x[0].equal(&x[1]).select(1.0, 0.0))?;
        let mut to = vec![*items, classes];
        to.extend(rest);
        self.reshape(hot, &to)
    }

    /// 0, 1, …, count − 1 as i32, a constant.
    pub fn iota(&mut self, count: usize) -> Result<ValueId> {
        let init = Init::Words((0..count as u32).collect());
        let tensor = TensorType::new([count], DType::I32);
        self.leaf(&format!("plimsoll.iota.{count}"), tensor, Leaf::State(init, Class::State))
    }

    /// The softmax over one axis.
    pub fn softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut kept = self.shape(x).to_vec();
        let Some(size) = kept.get_mut(axis) else {
            let message = format!("axis {axis} of shape {:?}", self.shape(x));
            return Err(Error::shape(self.scoped_name("softmax"), message));
        };
        *size = 1;
        let largest = self.max(x, &[axis])?;
        let largest = self.stop_gradient(largest)?;
        let largest = self.reshape(largest, &kept)?;
        let powers = self.map(&[x, largest], |x| (&x[0] - &x[1]).exp())?;
        let sum = self.sum(powers, &[axis])?;
        let sum = self.reshape(sum, &kept)?;
        self.map(&[powers, sum], |x| &x[0] / &x[1])
    }

    fn same_shape(&self, name: &str, a: ValueId, b: ValueId) -> Result<()> {
        if self.shape(a) == self.shape(b) {
            return Ok(());
        }
        let message = format!("shapes {:?} and {:?} differ", self.shape(a), self.shape(b));
        Err(Error::shape(self.scoped_name(name), message))
    }

    /// The mean of each item's elements, every item of weight 1.
    fn item_means(&mut self, x: ValueId) -> Result<Loss> {
        let axes: Vec<usize> = (1..self.shape(x).len()).collect();
        let per_item = if axes.is_empty() { x } else { self.mean(x, &axes)? };
        self.unweighted(per_item)
    }

    /// A loss whose items all weigh 1.
    pub fn unweighted(&mut self, per_item: ValueId) -> Result<Loss> {
        let shape = self.shape(per_item).to_vec();
        Ok(Loss { per_item, weight: self.constant(&shape, 1.0)?, correct: None })
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
