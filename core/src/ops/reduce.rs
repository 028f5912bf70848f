//! `reduce`: sum or maximum over neighbouring axes, with a map as prologue.
//!
//! The iteration space is seen as [outer, length, inner]; `length` vanishes.
//! Rows (inner = 1) take a workgroup each; columns take an invocation each,
//! and where there are few columns and many rows, the rows are cut into
//! chunks whose partial results are reduced by a second launch. Accumulation
//! is f32 in an order that depends on the shape only.

use serde::{Deserialize, Serialize};

use super::{
    Cost, Emit, LowerContext, Map, Op, Operand, Operation, Reshape, Tensor64, TensorType, ValueId,
    map,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{E, Expression, Scalar};
use crate::launch::{Capabilities, Launch, StorageId};
use crate::shape;

/// Invocations of a reduction's workgroup.
pub const WORKGROUP: u32 = 64;
/// Rows that one invocation of a column reduction walks before it is worth
/// cutting them into chunks.
pub const CHUNK_ROWS: usize = 256;
/// Most chunks of a column reduction.
pub const MAX_CHUNKS: usize = 64;

/// What is computed over the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReduceKind {
    /// Σ.
    Sum,
    /// The largest element.
    Max,
}

/// A reduction of `shape` over the axes `first..first + count`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// Sum or maximum.
    pub kind: ReduceKind,
    /// What is reduced, over `shape`; one f32 output.
    pub prologue: Expression,
    /// The iteration space.
    pub shape: Vec<usize>,
    /// First axis that vanishes.
    pub first: usize,
    /// Number of axes that vanish.
    pub count: usize,
}

impl Reduce {
    /// The iteration space as [outer, length, inner].
    pub fn extents(&self) -> [usize; 3] {
        let end = self.first + self.count;
        [
            shape::numel(&self.shape[..self.first]),
            shape::numel(&self.shape[self.first..end]),
            shape::numel(&self.shape[end..]),
        ]
    }

    fn output_shape(&self) -> Vec<usize> {
        let mut out = self.shape[..self.first].to_vec();
        out.extend(&self.shape[self.first + self.count..]);
        out
    }

    /// Chunks into which the rows of a column reduction are cut (1: none).
    pub fn chunks(&self) -> usize {
        let [_, length, inner] = self.extents();
        if inner == 1 { 1 } else { length.div_ceil(CHUNK_ROWS).min(MAX_CHUNKS) }
    }
}

/// Emits a reduction of `value` over any axes, which vanish.
pub fn emit(
    cx: &mut dyn Emit,
    kind: ReduceKind,
    value: ValueId,
    axes: &[usize],
) -> Result<ValueId> {
    let mut value = value;
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    axes.dedup();
    // Runs of neighbouring axes, the last first so that the rest keep their place.
    while let Some(last) = axes.pop() {
        let mut first = last;
        while axes.last().is_some_and(|a| a + 1 == first) {
            first = axes.pop().expect("not empty");
        }
        let t = cx.tensor_type(value);
        if last >= t.shape.len() {
            return Err(Error::shape("reduce", format!("axis {last} of shape {:?}", t.shape)));
        }
        let op = Reduce {
            kind,
            prologue: Expression::identity(),
            shape: t.shape,
            first,
            count: last - first + 1,
        };
        value = cx.emit(Op::Reduce(op), &[value])?[0];
    }
    Ok(value)
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        map::check_inputs("reduce", &self.prologue, inputs, &self.shape)?;
        if self.count == 0 || self.first + self.count > self.shape.len() {
            let message = format!(
                "axes {}..{} of shape {:?}",
                self.first,
                self.first + self.count,
                self.shape
            );
            return Err(Error::shape("reduce", message));
        }
        let out = self.prologue.outputs[0] as usize;
        if self.prologue.types()[out] != Scalar::F32 {
            return Err(Error::shape("reduce", "only floats are reduced; cast first"));
        }
        Ok(vec![TensorType::f32(self.output_shape())])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0].filter(|_| wanted[0]) else {
            return Ok(vec![None; inputs.len()]);
        };
        if !self.prologue.is_identity() {
            // Fusion happens after differentiation.
            return Err(Error::shape(
                "reduce",
                "a reduction with a prologue is not differentiated",
            ));
        }
        let mut kept = self.shape.clone();
        kept[self.first..self.first + self.count].fill(1);
        let keep = |cx: &mut dyn Emit, v: ValueId| -> Result<ValueId> {
            Ok(cx.emit(Op::Reshape(Reshape { shape: kept.clone() }), &[v])?[0])
        };
        let over = |cx: &mut dyn Emit, e: E, operands: &[ValueId]| -> Result<ValueId> {
            let expression = Expression::new(vec![DType::F32; operands.len()], &[e]);
            Ok(cx.emit(Op::Map(Map { expression, shape: self.shape.clone() }), operands)?[0])
        };
        let g = keep(cx, g)?;
        let result = match self.kind {
            ReduceKind::Sum => over(cx, E::input(0), &[g])?,
            ReduceKind::Max => {
                // Equal largest elements share the gradient, as PyTorch's amax.
                let m = keep(cx, outputs[0])?;
                let is_max = || E::input(0).equal(E::input(1)).select(1.0, 0.0);
                let mask = over(cx, is_max(), &[inputs[0], m])?;
                let axes: Vec<usize> = (self.first..self.first + self.count).collect();
                let count = emit(cx, ReduceKind::Sum, mask, &axes)?;
                let count = keep(cx, count)?;
                let e = is_max() * E::input(2) / E::input(3);
                over(cx, e, &[inputs[0], m, g, count])?
            }
        };
        Ok(vec![Some(result)])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let numel = shape::numel(&self.shape) as u64;
        Cost {
            flops: numel * (1 + self.prologue.flops()),
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn workspace_bytes(&self, _inputs: &[TensorType], _capabilities: &Capabilities) -> u64 {
        let [outer, _, inner] = self.extents();
        match self.chunks() {
            1 => 0,
            chunks => (outer * chunks * inner * 4) as u64,
        }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let [outer, length, inner] = self.extents();
        let out = cx.outputs[0].storage;
        let chunks = self.chunks();
        if chunks == 1 {
            return vec![self.launch(
                cx,
                &self.prologue,
                cx.inputs,
                out,
                &self.shape,
                [outer, length, inner],
                1,
            )];
        }
        // [outer, length, inner] → [outer, chunks, inner] → [outer, inner]
        let workspace = cx.workspace.expect("chunks need workspace");
        let partial =
            Operand { storage: workspace, tensor: TensorType::f32([outer, chunks, inner]) };
        let first = self.launch(
            cx,
            &self.prologue,
            cx.inputs,
            workspace,
            &self.shape,
            [outer, length, inner],
            chunks,
        );
        let identity = Expression::identity();
        let shape = partial.tensor.shape.clone();
        let second = self.launch(cx, &identity, &[partial], out, &shape, [outer, chunks, inner], 1);
        vec![first, second]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let [outer, length, inner] = self.extents();
        let mut out = Vec::with_capacity(outer * inner);
        for o in 0..outer {
            for c in 0..inner {
                let terms = (0..length).map(|r| {
                    let i = (o * length + r) * inner + c;
                    map::evaluate_at(&self.prologue, inputs, &self.shape, i)[0].float()
                });
                out.push(match self.kind {
                    ReduceKind::Sum => terms.sum(),
                    ReduceKind::Max => terms
                        .fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
                });
            }
        }
        vec![Tensor64::new(&TensorType::f32(self.output_shape()), out)]
    }
}

impl Reduce {
    /// `reduce_rows`: parameters rows, length. `reduce_columns`: parameters
    /// outer, length, inner, chunks, rows of a chunk; it writes
    /// [outer, chunks, inner]. Both call `prologue(i)`; `MAXIMUM` tells the kind.
    #[allow(clippy::too_many_arguments)]
    fn launch(
        &self,
        cx: &LowerContext<'_>,
        prologue: &Expression,
        inputs: &[Operand],
        out: usize,
        to: &[usize],
        [outer, length, inner]: [usize; 3],
        chunks: usize,
    ) -> Launch {
        let mut bound = map::Bindings::default();
        bound.bind_named("out", out, DType::F32);
        let rows = inner == 1;
        let mut parameters: Vec<u32> = if rows {
            vec![outer as u32, length as u32]
        } else {
            let chunk_rows = length.div_ceil(chunks);
            [outer, length, inner, chunks, chunk_rows].map(|x| x as u32).to_vec()
        };
        let body = map::body("prologue", prologue, inputs, &[], to, &mut bound, &mut parameters);
        let groups = if rows {
            outer as u64
        } else {
            ((outer * chunks * inner) as u64).div_ceil(u64::from(WORKGROUP))
        };
        let mut constants = vec![
            ("WORKGROUP".into(), WORKGROUP),
            ("MAXIMUM".into(), u32::from(self.kind == ReduceKind::Max)),
        ];
        if !rows {
            constants.push(("ACCUMULATE".into(), 0));
        }
        bound.launch(
            if rows { "reduce_rows" } else { "reduce_columns" },
            constants,
            vec![body],
            cx.capabilities.fold_groups(groups),
            parameters,
        )
    }
}

/// A launch that sums the rows of the matrix at the start of `from` into `out`,
/// or adds the sums to what `out` holds. One invocation walks a column: for
/// some hundred rows.
pub(super) fn column_sums(
    capabilities: &Capabilities,
    from: StorageId,
    [rows, columns]: [usize; 2],
    out: StorageId,
    accumulate: bool,
) -> Launch {
    let mut bound = map::Bindings::default();
    bound.bind_named("out", out, DType::F32);
    let mut parameters = [1, rows, columns, 1, rows].map(|x| x as u32).to_vec();
    let matrix = Operand { storage: from, tensor: TensorType::f32([rows, columns]) };
    let identity = Expression::identity();
    let to = matrix.tensor.shape.clone();
    let body = map::body("prologue", &identity, &[matrix], &[], &to, &mut bound, &mut parameters);
    let constants = vec![
        ("WORKGROUP".into(), WORKGROUP),
        ("MAXIMUM".into(), 0),
        ("ACCUMULATE".into(), u32::from(accumulate)),
    ];
    let groups = capabilities.fold_groups((columns as u64).div_ceil(u64::from(WORKGROUP)));
    bound.launch("reduce_columns", constants, vec![body], groups, parameters)
}
