//! Sums, means and maxima.

use std::collections::BTreeSet;

use super::Graph;
use crate::error::Result;
use crate::ops::{ReduceKind, ValueId, reduce};

impl Graph {
    /// Σ over axes, which vanish.
    pub fn sum(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        reduce::emit(self, ReduceKind::Sum, x, axes)
    }

    /// Largest element over axes, which vanish.
    pub fn max(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        reduce::emit(self, ReduceKind::Max, x, axes)
    }

    /// Mean over axes, which vanish.
    pub fn mean(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let distinct: BTreeSet<usize> = axes.iter().copied().collect();
        let count: usize = distinct.iter().filter_map(|a| self.shape(x).get(*a)).product();
        let sum = self.sum(x, axes)?;
        self.map(&[sum], |x| &x[0] * (1.0 / count as f32))
    }
}
