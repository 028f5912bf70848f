//! Normalisations: [`Moments`] and a map each.

use super::{Graph, Mode};
use crate::error::{Error, Result};
use crate::ops::{Emit, Moments, Op, ValueId};
use crate::shape;

/// Mean, variance and 1/√(variance + ε) of rows, `[rows]` each.
#[derive(Clone, Copy, Debug)]
pub struct RowMoments {
    /// The mean.
    pub mean: ValueId,
    /// The biased variance, or the mean square if not centred.
    pub variance: ValueId,
    /// 1/√(variance + ε).
    pub rstd: ValueId,
}

/// Scale and shift of a normalised tensor; either may be missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine {
    /// Multiplied.
    pub weight: Option<ValueId>,
    /// Added.
    pub bias: Option<ValueId>,
}

/// What a batch norm keeps between steps.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// Running mean, a state leaf `[channels]`.
    pub mean: ValueId,
    /// Running unbiased variance, a state leaf `[channels]`.
    pub variance: ValueId,
    /// Weight of the newest batch, 0.1 in PyTorch.
    pub momentum: f32,
}

impl Graph {
    /// The moments of the rows of `x` seen as [outer, rows, inner].
    pub fn moments(&mut self, x: ValueId, op: Moments) -> Result<RowMoments> {
        let out = self.emit(Op::Moments(op), &[x])?;
        Ok(RowMoments { mean: out[0], variance: out[1], rstd: out[2] })
    }

    /// Layer norm over the last dimension: (x − mean)·rstd·weight + bias, as
    /// J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", 2016.
    /// Weight and bias are of the last dimension's size.
    pub fn layer_norm(&mut self, x: ValueId, affine: Affine, epsilon: f32) -> Result<ValueId> {
        self.last_norm("layer_norm", x, affine, epsilon, true)
    }

    /// RMS norm over the last dimension: x / √(mean x² + ε)·weight, as
    /// B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.
    pub fn rms_norm(&mut self, x: ValueId, affine: Affine, epsilon: f32) -> Result<ValueId> {
        self.last_norm("rms_norm", x, affine, epsilon, false)
    }

    fn last_norm(
        &mut self,
        name: &str,
        x: ValueId,
        affine: Affine,
        epsilon: f32,
        centred: bool,
    ) -> Result<ValueId> {
        let shape = self.shape(x).to_vec();
        let Some((&width, outer)) = shape.split_last() else {
            return Err(Error::shape(self.scoped_name(name), "a scalar has no last dimension"));
        };
        let op = Moments { extents: [1, shape::numel(outer), width], centred, epsilon };
        let moments = self.moments(x, op)?;
        let mut rows = shape.clone();
        rows[shape.len() - 1] = 1;
        self.normalise(x, moments, centred, &rows, affine)
    }

    /// Group norm of [N, C, …], each item's channels in `groups` groups, as
    /// Y. Wu, K. He, "Group normalization", 2018. Weight and bias are `[C]`.
    pub fn group_norm(
        &mut self,
        x: ValueId,
        groups: usize,
        affine: Affine,
        epsilon: f32,
    ) -> Result<ValueId> {
        let shape = self.shape(x).to_vec();
        let [items, channels, ref spatial @ ..] = shape[..] else {
            let message = format!("shape {shape:?}, expected [items, channels, …]");
            return Err(Error::shape(self.scoped_name("group_norm"), message));
        };
        if groups == 0 || !channels.is_multiple_of(groups) {
            let message = format!("{channels} channels do not fall into {groups} equal groups");
            return Err(Error::shape(self.scoped_name("group_norm"), message));
        }
        let (each, positions) = (channels / groups, shape::numel(spatial));
        let op = Moments { extents: [1, items * groups, each * positions], centred: true, epsilon };
        let moments = self.moments(x, op)?;
        let view = self.reshape(x, &[items, groups, each, positions])?;
        let mut to_channels = |v: Option<ValueId>| -> Result<Option<ValueId>> {
            v.map(|v| self.reshape(v, &[groups, each, 1])).transpose()
        };
        let affine =
            Affine { weight: to_channels(affine.weight)?, bias: to_channels(affine.bias)? };
        let y = self.normalise(view, moments, true, &[items, groups, 1, 1], affine)?;
        self.reshape(y, &shape)
    }

    /// Batch norm of [N, C, …], as S. Ioffe, C. Szegedy, "Batch
    /// normalization", 2015, with PyTorch's running statistics: in training
    /// the batch's own statistics normalise, and the running ones take them
    /// over once a step (the variance unbiased); in evaluation the running ones
    /// normalise. Weight and bias are `[C]`.
    pub fn batch_norm(
        &mut self,
        x: ValueId,
        affine: Affine,
        running: Running,
        epsilon: f32,
    ) -> Result<ValueId> {
        let shape = self.shape(x).to_vec();
        let [items, channels, ref spatial @ ..] = shape[..] else {
            let message = format!("shape {shape:?}, expected [items, channels, …]");
            return Err(Error::shape(self.scoped_name("batch_norm"), message));
        };
        let positions = shape::numel(spatial);
        let moments = if self.mode == Mode::Evaluate {
            let rstd = self.map(&[running.variance], |v| (&v[0] + epsilon).rsqrt())?;
            RowMoments { mean: running.mean, variance: running.variance, rstd }
        } else {
            let extents = [items, channels, positions];
            let n = items * positions;
            if n < 2 {
                let message = "batch statistics of a single value have no variance";
                return Err(Error::shape(self.scoped_name("batch_norm"), message));
            }
            let moments = self.moments(x, Moments { extents, centred: true, epsilon })?;
            let unbiased = n as f32 / (n - 1) as f32;
            let variance = self.map(&[moments.variance], |v| &v[0] * unbiased)?;
            self.track(running.mean, moments.mean, running.momentum)?;
            self.track(running.variance, variance, running.momentum)?;
            moments
        };
        let view = self.reshape(x, &[items, channels, positions])?;
        let mut to_channels = |v: Option<ValueId>| -> Result<Option<ValueId>> {
            v.map(|v| self.reshape(v, &[channels, 1])).transpose()
        };
        let affine =
            Affine { weight: to_channels(affine.weight)?, bias: to_channels(affine.bias)? };
        let y = self.normalise(view, moments, true, &[channels, 1], affine)?;
        self.reshape(y, &shape)
    }

    /// (x − mean)·rstd·weight + bias, the moments viewed under `rows`.
    fn normalise(
        &mut self,
        x: ValueId,
        moments: RowMoments,
        centred: bool,
        rows: &[usize],
        affine: Affine,
    ) -> Result<ValueId> {
        let mut operands = vec![x, self.reshape(moments.rstd, rows)?];
        if centred {
            operands.push(self.reshape(moments.mean, rows)?);
        }
        operands.extend(affine.weight);
        operands.extend(affine.bias);
        let to = self.shape(x).to_vec();
        let y = self.map(&operands, |i| {
            let mut rest = i[2..].iter();
            let mut next = || rest.next().expect("as many operands as were pushed");
            let mut y = if centred { (&i[0] - next()) * &i[1] } else { &i[0] * &i[1] };
            if affine.weight.is_some() {
                y = y * next();
            }
            if affine.bias.is_some() {
                y = y + next();
            }
            y
        })?;
        if self.shape(y) != to {
            let message = format!("weight or bias does not fit the input's shape {to:?}");
            return Err(Error::shape(self.scoped_name("normalise"), message));
        }
        Ok(y)
    }

    /// Has the step program take `value` over into a running average.
    fn track(&mut self, leaf: ValueId, value: ValueId, momentum: f32) -> Result<()> {
        if !(0.0..=1.0).contains(&momentum) {
            let message = format!("{momentum} is outside [0, 1]");
            return Err(Error::Setting { name: "momentum", message });
        }
        self.tracked.push(super::Tracked { leaf, value, momentum });
        Ok(())
    }
}
