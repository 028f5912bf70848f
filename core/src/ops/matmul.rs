//! `matmul`: batched matrix product with either operand transposed and an
//! epilogue expression (bias, activation, residual, accumulation).
//!
//! C[b, m, n] = epilogue(Σₖ A[b, m, k] · B[b, k, n]); accumulation is f32.

use serde::{Deserialize, Serialize};

use super::{Cost, Emit, LowerContext, Op, Operand, Operation, Tensor64, TensorType, ValueId, map};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{Binary, Expression, Scalar, Term};
use crate::launch::{Capabilities, Launch};

/// A matrix product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matmul {
    /// A is stored as [.., K, M].
    pub transpose_a: bool,
    /// B is stored as [.., N, K].
    pub transpose_b: bool,
    /// Input 0 is the product's element; the others are the op's inputs from
    /// the third on, read by position of the output. One f32 output.
    pub epilogue: Expression,
}

/// Sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Sizes {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// GPU kernels for the product; the tuner chooses among those that
/// [`Variant::supported`] admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// 64×64 tiles through workgroup memory, 256 invocations of 4×4.
    Tiled,
    /// 8×4 results an invocation from storage directly, no workgroup memory.
    Register,
    /// 8×2 results an invocation; subgroups load A once and pass it around.
    Subgroup,
}

impl Variant {
    /// All variants, the default first.
    pub const ALL: [Variant; 3] = [Variant::Tiled, Variant::Register, Variant::Subgroup];

    /// The kernel's name.
    pub fn kernel(self) -> &'static str {
        match self {
            Variant::Tiled => "matmul_tiled",
            Variant::Register => "matmul_register",
            Variant::Subgroup => "matmul_subgroup",
        }
    }

    /// Rows and columns of the result that one workgroup computes.
    pub fn tile(self) -> (usize, usize) {
        match self {
            Variant::Tiled => (64, 64),
            // 32 invocations of 8 × 4 side by side.
            Variant::Register => (8, 128),
            // 64 invocations of 8 × 2 side by side.
            Variant::Subgroup => (8, 128),
        }
    }

    /// Whether a device can run it.
    pub fn supported(self, c: &Capabilities) -> bool {
        match self {
            Variant::Tiled => c.max_invocations >= 256 && c.workgroup_bytes >= 8 << 10,
            Variant::Register => true,
            // Lanes 0 to 3 hold the rows.
            Variant::Subgroup => c.subgroup_sizes.is_some_and(|(smallest, _)| smallest >= 4),
        }
    }
}

/// Where the matrices of a launch start in their storages, in elements.
/// Operands of the epilogue that are as large as the result lie like it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offsets {
    pub a: usize,
    pub b: usize,
    pub out: usize,
}

impl Matmul {
    /// A plain product.
    pub fn new(transpose_a: bool, transpose_b: bool) -> Matmul {
        Matmul { transpose_a, transpose_b, epilogue: Expression::identity() }
    }

    /// Whether the epilogue is just "add input `k` of the op": then the result
    /// may be added up in that input's memory on every backend.
    pub fn accumulates_onto(&self, k: usize) -> bool {
        if k < 2 || self.epilogue.terms.len() != 3 {
            return false;
        }
        let addend = Term::Input(k as u32 - 1);
        let reads = |id: u32| self.epilogue.terms[id as usize];
        matches!(self.epilogue.terms[2], Term::Binary(Binary::Add, a, b)
            if [reads(a), reads(b)] == [Term::Input(0), addend]
                || [reads(a), reads(b)] == [addend, Term::Input(0)])
    }

    /// The sizes for operands of these types, which [`Operation::infer`] has
    /// accepted.
    pub fn sizes(&self, inputs: &[TensorType]) -> Sizes {
        let rank = inputs[0].shape.len();
        let (a, b) = (&inputs[0].shape[rank - 2..], &inputs[1].shape[rank - 2..]);
        let (m, k) = if self.transpose_a { (a[1], a[0]) } else { (a[0], a[1]) };
        let n = if self.transpose_b { b[0] } else { b[1] };
        Sizes { batch: inputs[0].shape[..rank - 2].iter().product(), m, n, k }
    }

    /// The launch of a product of these sizes. Of the first two `inputs` only
    /// the storages count, of the others and of `out` the shapes too.
    ///
    /// Parameters: m, n, k, batch, first elements of A, B and the result. Groups
    /// are tiles along n, then along m, then the batch, folded so that no
    /// dimension of the grid overflows.
    pub(crate) fn launch(
        &self,
        cx: &LowerContext<'_>,
        s: Sizes,
        inputs: &[Operand],
        out: &Operand,
        offsets: Offsets,
    ) -> Launch {
        let variant =
            cx.matmul_variant.filter(|v| v.supported(cx.capabilities)).unwrap_or_else(|| {
                *Variant::ALL
                    .iter()
                    .find(|v| v.supported(cx.capabilities))
                    .expect("one is portable")
            });
        let mut bound = map::Bindings::default();
        bound.bind_named("a", inputs[0].storage, DType::F32);
        bound.bind_named("b", inputs[1].storage, DType::F32);
        bound.bind_named("out", out.storage, DType::F32);
        let mut parameters: Vec<u32> =
            [s.m, s.n, s.k, s.batch, offsets.a, offsets.b, offsets.out].map(|x| x as u32).to_vec();
        let body = map::body_with_argument(
            "epilogue",
            &self.epilogue,
            Some(0),
            &inputs[2..],
            &[],
            &out.tensor.shape,
            &mut bound,
            &mut parameters,
        );
        let (tile_m, tile_n) = variant.tile();
        let tiles = s.n.div_ceil(tile_n) * s.m.div_ceil(tile_m) * s.batch;
        let groups = cx.capabilities.fold_groups(tiles as u64);
        let constants = vec![
            ("TRANSPOSE_A".into(), u32::from(self.transpose_a)),
            ("TRANSPOSE_B".into(), u32::from(self.transpose_b)),
        ];
        bound.launch(variant.kernel(), constants, vec![body], groups, parameters)
    }
}

impl Operation for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        if inputs.len() < 2 {
            return Err(Error::shape(
                "matmul",
                format!("takes two matrices, was given {}", inputs.len()),
            ));
        }
        let (a, b) = (&inputs[0], &inputs[1]);
        super::expect_dtype("matmul", a, DType::F32)?;
        super::expect_dtype("matmul", b, DType::F32)?;
        let rank = a.shape.len();
        let inner = |t: &TensorType, second: bool| t.shape[rank - 2 + usize::from(second)];
        let fits = rank >= 2
            && b.shape.len() == rank
            && a.shape[..rank - 2] == b.shape[..rank - 2]
            && inner(a, !self.transpose_a) == inner(b, self.transpose_b);
        if !fits {
            let t = |on| if on { "ᵀ" } else { "" };
            return Err(Error::shape(
                "matmul",
                format!(
                    "{:?}{} times {:?}{}: batch dimensions and inner sizes must be equal",
                    a.shape,
                    t(self.transpose_a),
                    b.shape,
                    t(self.transpose_b)
                ),
            ));
        }
        let sizes = self.sizes(inputs);
        let mut shape = a.shape[..rank - 2].to_vec();
        shape.extend([sizes.m, sizes.n]);
        let out = TensorType::f32(shape);
        let mut operands = vec![out.clone()];
        operands.extend_from_slice(&inputs[2..]);
        map::check_inputs("matmul epilogue", &self.epilogue, &operands, &out.shape)?;
        if self.epilogue.types()[self.epilogue.outputs[0] as usize] != Scalar::F32 {
            return Err(Error::shape("matmul epilogue", "must give a float"));
        }
        Ok(vec![out])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None; inputs.len()]) };
        if !self.epilogue.is_identity() {
            return Err(Error::shape("matmul", "a product with an epilogue is not differentiated"));
        }
        let (a, b, ta, tb) = (inputs[0], inputs[1], self.transpose_a, self.transpose_b);
        let mut product = |want: bool, x, y, tx, ty| -> Result<Option<ValueId>> {
            if !want {
                return Ok(None);
            }
            Ok(Some(cx.emit(Op::Matmul(Matmul::new(tx, ty)), &[x, y])?[0]))
        };
        let da = if ta {
            product(wanted[0], b, g, tb, true)
        } else {
            product(wanted[0], g, b, false, !tb)
        }?;
        let db = if tb {
            product(wanted[1], g, a, true, ta)
        } else {
            product(wanted[1], a, g, !ta, false)
        }?;
        Ok(vec![da, db])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let s = self.sizes(inputs);
        let results = (s.batch * s.m * s.n) as u64;
        Cost {
            flops: results * (2 * s.k as u64 + self.epilogue.flops()),
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn may_alias(&self, inputs: &[TensorType], k: usize, _j: usize) -> bool {
        let s = self.sizes(inputs);
        self.accumulates_onto(k) && inputs[k].numel() == s.batch * s.m * s.n
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let sizes = self.sizes(&types);
        vec![self.launch(cx, sizes, cx.inputs, &cx.outputs[0], Offsets::default())]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let s = self.sizes(&types);
        let (a, b) = (&inputs[0].values, &inputs[1].values);
        let mut out = vec![0.0; s.batch * s.m * s.n];
        for (i, o) in out.iter_mut().enumerate() {
            let (batch, m, n) = (i / (s.m * s.n), i / s.n % s.m, i % s.n);
            for k in 0..s.k {
                let at = if self.transpose_a { k * s.m + m } else { m * s.k + k };
                let bt = if self.transpose_b { n * s.k + k } else { k * s.n + n };
                *o += a[batch * s.m * s.k + at] * b[batch * s.k * s.n + bt];
            }
        }
        let t = self.infer(&types).expect("checked").remove(0);
        let mut operands = vec![Tensor64::new(&t, out)];
        operands.extend_from_slice(&inputs[2..]);
        let values = (0..t.numel())
            .map(|i| map::evaluate_at(&self.epilogue, &operands, &t.shape, i)[0].float())
            .collect();
        vec![Tensor64::new(&t, values)]
    }
}
