//! `moments`: mean, variance and reciprocal standard deviation of the rows of
//! a tensor. Layer, group, batch and RMS norms are these and a map.
//!
//! The tensor is seen as [outer, rows, inner]; a row's elements are those of
//! all outer and inner positions. Layer norm has outer 1, batch norm has the
//! items as outer and the channels as rows.
//!
//! The variance is taken in a second pass around the mean, since a
//! difference of sums of squares cancels. Long rows are cut into chunks by
//! shape alone, joined in order by the formula of T. F. Chan, G. H. Golub,
//! R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing
//! sample variances", 1979.

use serde::{Deserialize, Serialize};

use super::{
    Cost, Emit, LowerContext, Map, Op, Operation, Reshape, Tensor64, TensorType, ValueId, map,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{E, Expression};
use crate::launch::{Capabilities, Launch, StorageId};

/// Elements of a row's chunk, where there are too few rows to fill a device.
const CHUNK: usize = 4096;
/// Most chunks of a row.
const MAX_CHUNKS: usize = 64;
/// Rows from which none is cut up.
const MANY_ROWS: usize = 512;

/// Input: x f32. Outputs, each `[rows]` f32: mean, variance (biased), and
/// 1/√(variance + ε). Where the moments are not `centred`, the variance is
/// the mean square.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// The view [outer, rows, inner].
    pub extents: [usize; 3],
    /// Whether the variance is taken around the mean or around 0.
    pub centred: bool,
    /// ε.
    pub epsilon: f32,
}

impl Moments {
    /// Elements of a row.
    pub fn length(&self) -> usize {
        self.extents[0] * self.extents[2]
    }

    /// Into how many chunks a row is cut (1: none).
    pub fn chunks(&self) -> usize {
        if self.extents[1] >= MANY_ROWS {
            return 1;
        }
        (self.length() / CHUNK).clamp(1, MAX_CHUNKS)
    }

    /// Elements of all chunks but the last, which may have fewer.
    pub fn chunk_length(&self) -> usize {
        self.length().div_ceil(self.chunks())
    }
}

impl Operation for Moments {
    fn name(&self) -> &'static str {
        "moments"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        super::expect_inputs("moments", inputs, 1)?;
        super::expect_dtype("moments", &inputs[0], DType::F32)?;
        let numel = self.extents.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if numel != Some(inputs[0].numel()) {
            let message = format!("shape {:?} viewed as {:?}", inputs[0].shape, self.extents);
            return Err(Error::shape("moments", message));
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            let message = format!("{} is not a finite number of at least 0", self.epsilon);
            return Err(Error::Setting { name: "epsilon", message });
        }
        Ok(vec![TensorType::f32([self.extents[1]]); 3])
    }

    /// dx = dmean/n + (2·dvariance − drstd·rstd³)·(x − mean)/n.
    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        if !wanted[0] || gradients.iter().all(Option::is_none) {
            return Ok(vec![None]);
        }
        let rows = self.extents[1];
        let view = |cx: &mut dyn Emit, v: ValueId, shape: &[usize]| -> Result<ValueId> {
            Ok(cx.emit(Op::Reshape(Reshape { shape: shape.to_vec() }), &[v])?[0])
        };
        let mut operands = vec![view(cx, inputs[0], &self.extents)?];
        let mut operand = |cx: &mut dyn Emit, v: ValueId| -> Result<E> {
            operands.push(view(cx, v, &[rows, 1])?);
            Ok(E::input(operands.len() - 1))
        };
        let inverse = 1.0 / self.length() as f32;
        let mut slope: Option<E> = None;
        if let Some(g) = gradients[1] {
            slope = Some(operand(cx, g)? * 2.0);
        }
        if let Some(g) = gradients[2] {
            let rstd = operand(cx, outputs[2])?;
            let part = operand(cx, g)? * (&rstd * &rstd * &rstd);
            slope = Some(match slope {
                Some(s) => s - part,
                None => -part,
            });
        }
        let mut sum: Option<E> = None;
        if let Some(slope) = slope {
            let x = match self.centred {
                true => E::input(0) - operand(cx, outputs[0])?,
                false => E::input(0),
            };
            sum = Some(x * slope * inverse);
        }
        if let Some(g) = gradients[0] {
            let part = operand(cx, g)? * inverse;
            sum = Some(match sum {
                Some(s) => s + part,
                None => part,
            });
        }
        let sum = sum.expect("one gradient is present");
        let e = Expression::new(vec![DType::F32; operands.len()], &[sum]);
        let (expression, operands) = map::prune(&e, &operands);
        let map = Map { expression, shape: self.extents.to_vec() };
        let dx = cx.emit(Op::Map(map), &operands)?[0];
        let shape = cx.tensor_type(inputs[0]).shape;
        Ok(vec![Some(view(cx, dx, &shape)?)])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Cost {
            flops: inputs[0].numel() as u64 * 4,
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn workspace_bytes(&self, _inputs: &[TensorType], _capabilities: &Capabilities) -> u64 {
        match self.chunks() {
            1 => 0,
            chunks => 8 * (self.extents[1] * chunks) as u64,
        }
    }

    /// `moments`: parameters rows, length, inner, chunks, elements of a chunk,
    /// bits of ε. Of cut rows it writes mean and sum of squared deviations of
    /// each chunk into the workspace, which `moments_join` (the same
    /// parameters) joins.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let [_, rows, inner] = self.extents;
        let (chunks, chunk_length) = (self.chunks(), self.chunk_length());
        let parameters: Vec<u32> = [rows, self.length(), inner, chunks, chunk_length]
            .into_iter()
            .map(|x| x as u32)
            .chain([self.epsilon.to_bits()])
            .collect();
        let bind = |bound: &mut map::Bindings, outputs: [StorageId; 3]| {
            for (name, storage) in ["mean", "variance", "rstd"].iter().zip(outputs) {
                bound.bind_named(name, storage, DType::F32);
            }
        };
        let outputs = [0, 1, 2].map(|j| cx.outputs[j].storage);
        let targets = match cx.workspace {
            Some(workspace) if chunks > 1 => [workspace; 3],
            _ => outputs,
        };
        let centred = u32::from(self.centred);
        let mut bound = map::Bindings::default();
        bound.bind_named("x", cx.inputs[0].storage, DType::F32);
        bind(&mut bound, targets);
        let constants = vec![
            ("WORKGROUP".into(), if chunk_length > 1024 { 256 } else { 64 }),
            ("CENTRED".into(), centred),
            ("PARTIAL".into(), u32::from(chunks > 1)),
            ("CONTIGUOUS".into(), u32::from(self.extents[0] == 1)),
        ];
        let groups = cx.capabilities.fold_groups((rows * chunks) as u64);
        let mut launches =
            vec![bound.launch("moments", constants, vec![], groups, parameters.clone())];
        if chunks > 1 {
            let mut bound = map::Bindings::default();
            bound.bind_named("partial", targets[0], DType::F32);
            bind(&mut bound, outputs);
            let constants = vec![("WORKGROUP".into(), 64), ("CENTRED".into(), centred)];
            let groups = cx.capabilities.fold_groups((rows as u64).div_ceil(64));
            launches.push(bound.launch("moments_join", constants, vec![], groups, parameters));
        }
        launches
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let [outer, rows, inner] = self.extents;
        let n = self.length() as f64;
        let mut out = [const { Vec::new() }; 3];
        for row in 0..rows {
            let elements = || {
                (0..outer).flat_map(move |o| (0..inner).map(move |i| (o * rows + row) * inner + i))
            };
            let x = |i: usize| inputs[0].values[i];
            let mean = elements().map(x).sum::<f64>() / n;
            let centre = if self.centred { mean } else { 0.0 };
            let variance = elements().map(|i| (x(i) - centre).powi(2)).sum::<f64>() / n;
            let rstd = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
            out.iter_mut().zip([mean, variance, rstd]).for_each(|(o, v)| o.push(v));
        }
        out.into_iter().map(|v| Tensor64::new(&TensorType::f32([rows]), v)).collect()
    }
}
