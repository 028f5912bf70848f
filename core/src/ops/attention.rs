//! `attention`: softmax(q · kᵀ · scale) · v for each head, tile by tile, so that
//! the scores, quadratic in the length of the sequence, never exist whole.
//!
//! The softmax is online: a row keeps the largest score so far and the sum of
//! exponentials relative to it, and corrects both, and the output, when a
//! larger one comes. The gradient computes the scores again from q, k and the
//! logarithm of the sum. After T. Dao, "FlashAttention-2" (2023).

use serde::{Deserialize, Serialize};

use super::{
    Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType, ValueId, expect_dtype, map,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Capabilities, Launch, StorageId};

/// Elements of the largest head: what the registers and the workgroup memory
/// of the GPU's kernels are cut for.
pub const LARGEST_HEAD: usize = 128;
/// Rows of a tile of scores on a GPU.
pub const TILE_ROWS: usize = 64;
/// Columns of a tile of scores on a GPU.
pub const TILE_COLUMNS: usize = 32;
/// Queries of a tile of scores on the CPU.
pub const CPU_QUERIES: usize = 128;
/// Keys of a tile of scores on the CPU: with the queries 64 KiB.
pub const CPU_KEYS: usize = 256;

/// Inputs: q [B, L, H, D], k and v [B, S, G, D] f32 with G dividing H (query
/// head h meets head h / (H / G) of k and v), D at most [`LARGEST_HEAD`], and
/// optionally a key mask [B, S] i32, 0 where a key is not to be seen. Outputs:
/// [B, L, H, D], and the logarithm of the sum of exponentials of each row of
/// scores [B, H, L]. Rows that see no key are 0 in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// What scores are multiplied with.
    pub scale: f32,
    /// Whether query i sees keys 0..=i only; then S = L.
    pub causal: bool,
}

/// Inputs: q, k, v, the outputs of [`Attention`], the gradient of the first,
/// and the key mask if there is one. Outputs: the gradients of q, k, v.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionGradient {
    /// The op whose gradient this is.
    pub forward: Attention,
}

/// Sizes of the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// B.
    pub batch: usize,
    /// L.
    pub queries: usize,
    /// S.
    pub keys: usize,
    /// H.
    pub heads: usize,
    /// G.
    pub key_heads: usize,
    /// D.
    pub head_size: usize,
}

impl Extents {
    /// Heads of q for each head of k and v.
    pub fn group(self) -> usize {
        self.heads / self.key_heads
    }

    /// Rows of scores.
    pub fn rows(self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Scratch elements of a thread of the CPU for `tiles` tiles of scores.
    pub fn scratch_numel(self, tiles: usize) -> usize {
        let tile = CPU_QUERIES.min(self.queries) * CPU_KEYS.min(self.keys);
        (tiles * tile).next_multiple_of(64)
    }

    fn scratch_bytes(self, tiles: usize, threads: u32) -> u64 {
        4 * u64::from(threads) * self.scratch_numel(tiles) as u64
    }

    /// Of `products` products of scores' size.
    fn cost(self, products: u64, causal: bool, inputs: &[TensorType], out: &[TensorType]) -> Cost {
        let scores = self.rows() as u64 * self.keys as u64 / if causal { 2 } else { 1 };
        Cost {
            flops: scores * (2 * products * self.head_size as u64 + 8),
            bytes: inputs.iter().chain(out).map(TensorType::bytes).sum(),
        }
    }
}

impl Attention {
    /// Of heads of `head_size` elements: scores are divided by its root.
    pub fn new(head_size: usize) -> Attention {
        Attention { scale: (1.0 / (head_size as f64).sqrt()) as f32, causal: false }
    }

    /// Queries see only the keys up to their own place.
    pub fn causal(mut self) -> Attention {
        self.causal = true;
        self
    }

    /// Sizes for inputs that [`Operation::infer`] has accepted.
    pub fn extents(inputs: &[TensorType]) -> Extents {
        let (q, k) = (&inputs[0].shape, &inputs[1].shape);
        Extents {
            batch: q[0],
            queries: q[1],
            keys: k[1],
            heads: q[2],
            key_heads: k[2],
            head_size: q[3],
        }
    }

    /// The sizes, or a typed error for inputs that do not fit together.
    pub fn check(&self, op: &str, inputs: &[TensorType]) -> Result<Extents> {
        inputs[..3].iter().try_for_each(|t| expect_dtype(op, t, DType::F32))?;
        let fail = |message: String| Err(Error::shape(op, message));
        if !self.scale.is_finite() {
            return fail(format!("scale {}: must be finite", self.scale));
        }
        let [q, k, v] = [0, 1, 2].map(|i| &inputs[i].shape);
        if q.len() != 4 || k.len() != 4 || k != v {
            return fail(format!(
                "q {q:?}, k {k:?}, v {v:?}: expected [batch, queries, heads, size] and twice [batch, keys, heads, size]"
            ));
        }
        if q[0] != k[0] || q[3] != k[3] || q[2] % k[2] != 0 {
            return fail(format!(
                "q {q:?} and k {k:?}: batch and head size must be equal, and the heads of q a multiple of those of k"
            ));
        }
        let e = Attention::extents(inputs);
        if self.causal && e.queries != e.keys {
            return fail(format!(
                "causal with {} queries and {} keys: must be equal",
                e.queries, e.keys
            ));
        }
        Ok(e)
    }

    /// The same of the key mask.
    pub fn check_mask(op: &str, e: Extents, mask: Option<&TensorType>) -> Result<()> {
        let Some(mask) = mask else { return Ok(()) };
        expect_dtype(op, mask, DType::I32)?;
        if mask.shape == [e.batch, e.keys] {
            return Ok(());
        }
        let expected = [e.batch, e.keys];
        Err(Error::shape(op, format!("key mask {:?}, expected {expected:?}", mask.shape)))
    }

    /// Parameters of all kernels but that of the rows' sums, and constants.
    fn words(&self, e: Extents) -> (Vec<u32>, Vec<(String, u32)>) {
        let sizes = [e.batch, e.queries, e.keys, e.heads, e.key_heads];
        let mut parameters: Vec<u32> = sizes.iter().map(|s| *s as u32).collect();
        parameters.push(self.scale.to_bits());
        let constants = vec![
            ("HEAD".into(), e.head_size as u32),
            ("CAUSAL".into(), u32::from(self.causal)),
            ("ROWS".into(), TILE_ROWS as u32),
            ("COLUMNS".into(), TILE_COLUMNS as u32),
        ];
        (parameters, constants)
    }

    /// Which query rows see which keys.
    fn sees(&self, mask: Option<&Tensor64>, e: Extents, b: usize, l: usize, s: usize) -> bool {
        (!self.causal || s <= l) && mask.is_none_or(|m| m.values[b * e.keys + s] != 0.0)
    }

    /// Calls `f(batch, head, query, scores of the keys seen)` for each row,
    /// in float64.
    fn reference_rows(
        &self,
        inputs: [&Tensor64; 2],
        mask: Option<&Tensor64>,
        e: Extents,
        mut f: impl FnMut(usize, usize, usize, &[(usize, f64)]),
    ) {
        let [q, k] = inputs.map(|t| &t.values);
        for b in 0..e.batch {
            for h in 0..e.heads {
                for l in 0..e.queries {
                    let row = e.query_at(b, l, h);
                    let seen: Vec<(usize, f64)> = (0..e.keys)
                        .filter(|s| self.sees(mask, e, b, l, *s))
                        .map(|s| {
                            let key = e.key_at(b, s, h / e.group());
                            let dot: f64 = (0..e.head_size).map(|d| q[row + d] * k[key + d]).sum();
                            (s, dot * f64::from(self.scale))
                        })
                        .collect();
                    f(b, h, l, &seen);
                }
            }
        }
    }
}

impl Extents {
    /// Where a query, or a row of the output, starts.
    pub fn query_at(self, batch: usize, query: usize, head: usize) -> usize {
        ((batch * self.queries + query) * self.heads + head) * self.head_size
    }

    /// Where a key or a value starts.
    pub fn key_at(self, batch: usize, key: usize, key_head: usize) -> usize {
        ((batch * self.keys + key) * self.key_heads + key_head) * self.head_size
    }

    /// The place of a row of scores.
    pub fn row_at(self, batch: usize, head: usize, query: usize) -> usize {
        (batch * self.heads + head) * self.queries + query
    }
}

fn logsumexp(scores: &[(usize, f64)]) -> f64 {
    let largest = scores.iter().map(|(_, s)| *s).fold(f64::NEG_INFINITY, f64::max);
    largest + scores.iter().map(|(_, s)| (s - largest).exp()).sum::<f64>().ln()
}

/// Binds the named storages, all f32, and the mask.
fn bind(named: &[(&str, StorageId)], mask: Option<StorageId>) -> map::Bindings {
    let mut bound = map::Bindings::default();
    for (name, storage) in named {
        bound.bind_named(name, *storage, DType::F32);
    }
    if let Some(mask) = mask {
        bound.bind_named("key_mask", mask, DType::I32);
    }
    bound
}

impl Operation for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        if !matches!(inputs.len(), 3 | 4) {
            let message = format!("takes 3 or 4 inputs, was given {}", inputs.len());
            return Err(Error::shape("attention", message));
        }
        let e = self.check("attention", inputs)?;
        if e.head_size > LARGEST_HEAD {
            let message = format!("heads of {} elements: at most {LARGEST_HEAD}", e.head_size);
            return Err(Error::shape("attention", message));
        }
        Attention::check_mask("attention", e, inputs.get(3))?;
        Ok(vec![inputs[0].clone(), TensorType::f32([e.batch, e.heads, e.queries])])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0].filter(|_| wanted[..3].contains(&true)) else {
            return Ok(vec![None; inputs.len()]);
        };
        let mut operands = vec![inputs[0], inputs[1], inputs[2], outputs[0], outputs[1], g];
        operands.extend(inputs.get(3));
        let op = AttentionGradient { forward: self.clone() };
        let made = cx.emit(Op::AttentionGradient(op), &operands)?;
        let mut out: Vec<_> = made.into_iter().zip(wanted).map(|(v, w)| w.then_some(v)).collect();
        out.resize(inputs.len(), None);
        Ok(out)
    }

    fn differentiable(&self, j: usize) -> bool {
        j == 0
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Attention::extents(inputs).cost(2, self.causal, inputs, outputs)
    }

    fn workspace_bytes(&self, inputs: &[TensorType], capabilities: &Capabilities) -> u64 {
        let e = Attention::extents(inputs);
        capabilities.threads.map_or(0, |threads| e.scratch_bytes(1, threads))
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let e = Attention::extents(&types);
        let [q, k, v] = [0, 1, 2].map(|i| cx.inputs[i].storage);
        let [out, logsumexp] = [0, 1].map(|j| cx.outputs[j].storage);
        let named = [("q", q), ("k", k), ("v", v), ("out", out), ("logsumexp", logsumexp)];
        let bound = bind(&named, cx.inputs.get(3).map(|o| o.storage));
        let tiles = e.batch * e.heads * e.queries.div_ceil(TILE_ROWS);
        let groups = cx.capabilities.fold_groups(tiles as u64);
        let (parameters, constants) = self.words(e);
        vec![bound.launch("attention", constants, vec![], groups, parameters)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let e = Attention::extents(&types);
        let v = &inputs[2].values;
        let mut out = vec![0.0; types[0].numel()];
        let mut sums = vec![0.0; e.rows()];
        self.reference_rows([&inputs[0], &inputs[1]], inputs.get(3), e, |b, h, l, scores| {
            if scores.is_empty() {
                return;
            }
            let sum = logsumexp(scores);
            sums[e.row_at(b, h, l)] = sum;
            let to = e.query_at(b, l, h);
            for (s, score) in scores {
                let from = e.key_at(b, *s, h / e.group());
                for d in 0..e.head_size {
                    out[to + d] += (score - sum).exp() * v[from + d];
                }
            }
        });
        let rows = TensorType::f32([e.batch, e.heads, e.queries]);
        vec![Tensor64::new(&types[0], out), Tensor64::new(&rows, sums)]
    }
}

impl Operation for AttentionGradient {
    fn name(&self) -> &'static str {
        "attention_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "attention_gradient";
        if !matches!(inputs.len(), 6 | 7) {
            let message = format!("takes 6 or 7 inputs, was given {}", inputs.len());
            return Err(Error::shape(op, message));
        }
        let e = self.forward.check(op, inputs)?;
        Attention::check_mask(op, e, inputs.get(6))?;
        let rows = TensorType::f32([e.batch, e.heads, e.queries]);
        for (k, expected) in [(3, &inputs[0]), (4, &rows), (5, &inputs[0])] {
            if inputs[k] != *expected {
                let (given, expected) = (&inputs[k].shape, &expected.shape);
                let message = format!("input {k} of shape {given:?}, expected {expected:?} f32");
                return Err(Error::shape(op, message));
            }
        }
        Ok(inputs[..3].to_vec())
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        Attention::extents(inputs).cost(5, self.forward.causal, inputs, outputs)
    }

    /// On a GPU the logarithm of the sum of each row and Σ gradient · output,
    /// side by side, so that one binding serves; on the CPU two tiles a thread.
    fn workspace_bytes(&self, inputs: &[TensorType], capabilities: &Capabilities) -> u64 {
        let e = Attention::extents(inputs);
        match capabilities.threads {
            Some(threads) => e.scratch_bytes(2, threads),
            None => 8 * e.rows() as u64,
        }
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let e = Attention::extents(&types);
        let rows = cx.workspace.expect("the rows' sums need workspace");
        let [q, k, v, out, logsumexp, g] = [0, 1, 2, 3, 4, 5].map(|i| cx.inputs[i].storage);
        let mask = cx.inputs.get(6).map(|o| o.storage);
        let [to_q, to_k, to_v] = [0, 1, 2].map(|j| cx.outputs[j].storage);
        let (parameters, constants) = self.forward.words(e);
        let rows_named = [("out", out), ("logsumexp", logsumexp), ("gradient", g), ("rows", rows)];
        let per_group = 16;
        let groups = cx.capabilities.fold_groups(e.rows().div_ceil(per_group) as u64);
        let head = vec![("HEAD".into(), e.head_size as u32)];
        let sizes = [e.batch, e.queries, e.heads].map(|s| s as u32).to_vec();
        let sums = bind(&rows_named, None).launch("attention_rows", head, vec![], groups, sizes);
        let operands = [("q", q), ("k", k), ("v", v), ("gradient", g), ("rows", rows)];
        let launch = |name: &str, results: &[(&str, StorageId)], tiles: usize| {
            let bound = bind(&[&operands, results].concat(), mask);
            let groups = cx.capabilities.fold_groups((e.batch * tiles) as u64);
            bound.launch(name, constants.clone(), vec![], groups, parameters.clone())
        };
        let queries = e.heads * e.queries.div_ceil(TILE_ROWS);
        let keys = e.key_heads * e.keys.div_ceil(TILE_ROWS);
        vec![
            sums,
            launch("attention_query_gradient", &[("to_q", to_q)], queries),
            launch("attention_key_gradient", &[("to_k", to_k), ("to_v", to_v)], keys),
        ]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let e = Attention::extents(&types);
        let [q, k, v, out, sums, g] = [0, 1, 2, 3, 4, 5].map(|i| &inputs[i].values);
        let mut to: Vec<Tensor64> =
            types[..3].iter().map(|t| Tensor64::new(t, vec![0.0; t.numel()])).collect();
        let scale = f64::from(self.forward.scale);
        let forward = &self.forward;
        forward.reference_rows([&inputs[0], &inputs[1]], inputs.get(6), e, |b, h, l, scores| {
            let row = e.query_at(b, l, h);
            let sum: f64 = (row..row + e.head_size).map(|i| g[i] * out[i]).sum();
            for (s, score) in scores {
                let key = e.key_at(b, *s, h / e.group());
                let p = (score - sums[e.row_at(b, h, l)]).exp();
                let dot: f64 = (0..e.head_size).map(|d| g[row + d] * v[key + d]).sum();
                let to_score = p * (dot - sum) * scale;
                for d in 0..e.head_size {
                    to[0].values[row + d] += to_score * k[key + d];
                    to[1].values[key + d] += to_score * q[row + d];
                    to[2].values[key + d] += p * g[row + d];
                }
            }
        });
        to
    }
}
