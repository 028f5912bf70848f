//! `attention` and its gradient: tiles of scores in scratch memory, the
//! products by the `gemm` crate.

use multiversion::multiversion;
use plimsoll_core::ops::Attention;
use plimsoll_core::ops::attention::{CPU_KEYS, CPU_QUERIES, Extents};
use rayon::prelude::*;

use super::matmul::Product;
use super::scratch::Scratch;
use crate::arena::Memory;
use crate::math;

/// What both passes have.
pub struct Heads {
    pub op: Attention,
    pub extents: Extents,
    pub q: Memory,
    pub k: Memory,
    pub v: Memory,
    pub mask: Option<Memory>,
    pub scratch: Memory,
}

/// Queries of a head and the keys that they meet.
#[derive(Clone, Copy)]
struct Tile {
    batch: usize,
    head: usize,
    query: usize,
    queries: usize,
    key: usize,
    keys: usize,
}

impl Heads {
    fn scratch(&self, tiles: usize) -> Scratch {
        let numel = self.extents.scratch_numel(tiles);
        Scratch { memory: Some(self.scratch), first: 0, numel }
    }

    /// Queries of a tile. Under a causal mask half of a tile's last square of
    /// scores is computed in vain, the less of all the smaller the tile.
    fn block(&self) -> usize {
        let quarter = (self.extents.queries / 4).next_multiple_of(16);
        if self.op.causal { quarter.clamp(16, CPU_QUERIES) } else { CPU_QUERIES }
    }

    /// The tiles of some queries: as many keys as the last of them sees.
    fn tiles(&self, batch: usize, head: usize, query: usize) -> impl Iterator<Item = Tile> {
        let e = self.extents;
        let queries = self.block().min(e.queries - query);
        let keys = if self.op.causal { query + queries } else { e.keys };
        (0..keys).step_by(CPU_KEYS).map(move |key| {
            let keys = CPU_KEYS.min(keys - key);
            Tile { batch, head, query, queries, key, keys }
        })
    }

    /// Where the tile's first key or value starts.
    fn key_at(&self, t: Tile) -> usize {
        self.extents.key_at(t.batch, t.key, t.head / self.extents.group())
    }

    fn query_at(&self, t: Tile) -> usize {
        self.extents.query_at(t.batch, t.query, t.head)
    }

    /// a · bᵀ of rows of heads: [queries, keys].
    fn scores(&self, threads: usize, t: Tile, a: &[f32], b: &[f32], to: &mut [f32]) {
        let e = self.extents;
        let product = Product {
            m: t.queries,
            n: t.keys,
            k: e.head_size,
            transpose_a: false,
            transpose_b: true,
            accumulate: false,
        };
        let (a, b) = (&a[self.query_at(t)..], &b[self.key_at(t)..]);
        // SAFETY: rows of a head lie a row of all heads apart.
        unsafe {
            product.run_strided(
                threads,
                (a.as_ptr(), e.heads * e.head_size),
                (b.as_ptr(), e.key_heads * e.head_size),
                (to.as_mut_ptr(), t.keys),
            );
        }
    }

    /// The part of the mask that the tile's keys have.
    fn mask(&self, t: Tile) -> Option<&[i32]> {
        // SAFETY: nobody writes to the mask.
        let mask = self.mask.map(|m| unsafe { m.read::<i32>() });
        mask.map(|m| &m[t.batch * self.extents.keys + t.key..][..t.keys])
    }

    /// Turns a tile's products into scores: −∞ where a key is not seen.
    fn hide(&self, t: Tile, tile: &mut [f32]) {
        let mask = self.mask(t);
        for (i, row) in tile.chunks_exact_mut(t.keys).enumerate() {
            scale_row(row, self.op.scale);
            if let Some(mask) = mask {
                let hidden = row.iter_mut().zip(mask).filter(|(_, m)| **m == 0);
                hidden.for_each(|(x, _)| *x = f32::NEG_INFINITY);
            }
            if self.op.causal {
                let seen = (t.query + i + 1).saturating_sub(t.key).min(t.keys);
                row[seen..].fill(f32::NEG_INFINITY);
            }
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn scale_row(row: &mut [f32], scale: f32) {
    row.iter_mut().for_each(|x| *x *= scale);
}

/// What exponents are relative to: nothing while no key has been seen.
fn shift(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// Turns scores into exponentials relative to the largest, or to `before` if
/// that is larger; returns what they are relative to and their sum.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn exponentials(row: &mut [f32], before: f32) -> (f32, f32) {
    let largest = math::largest(row).max(before);
    let shift = shift(largest);
    row.iter_mut().for_each(|x| *x = math::exp(*x - shift));
    (largest, math::sum(row, |x| x))
}

/// Turns scores into probabilities and their gradients into those of the
/// products: p · (gradient − sum) · scale.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn row_gradient(p: &mut [f32], gradient: &mut [f32], logsumexp: f32, sum: f32, scale: f32) {
    for (p, g) in p.iter_mut().zip(gradient) {
        *p = math::exp(*p - logsumexp);
        *g = *p * (*g - sum) * scale;
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "x86_64+sse4.1"))]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    lanes.iter().sum()
}

/// The output and the logarithms of the rows' sums.
pub struct Task {
    pub heads: Heads,
    pub outputs: [Memory; 2],
}

impl Task {
    pub fn run(&self, threads: usize) {
        let e = self.heads.extents;
        let block = self.heads.block();
        let blocks = e.queries.div_ceil(block);
        let pieces = e.batch * e.heads * blocks;
        let scratch = self.heads.scratch(1);
        let threads = if pieces == 1 { threads } else { 1 };
        (0..pieces).into_par_iter().for_each(|piece| {
            let (head, query) = (piece / blocks, piece % blocks * block);
            // SAFETY: only this piece runs on this thread now.
            let scratch = unsafe { scratch.take() };
            self.piece(threads, head / e.heads, head % e.heads, query, scratch);
        });
    }

    fn piece(&self, threads: usize, batch: usize, head: usize, query: usize, scratch: &mut [f32]) {
        let (heads, e) = (&self.heads, self.heads.extents);
        // SAFETY: nobody writes to the inputs.
        let [q, k, v] = [heads.q, heads.k, heads.v].map(|m| unsafe { m.read::<f32>() });
        let width = e.heads * e.head_size;
        let queries = heads.block().min(e.queries - query);
        let first = e.query_at(batch, query, head);
        // SAFETY: each piece has rows of its own.
        let row =
            |i: usize| unsafe { self.outputs[0].write_part::<f32>(first + i * width, e.head_size) };
        let mut largest = [f32::NEG_INFINITY; CPU_QUERIES];
        let mut sums = [0.0f32; CPU_QUERIES];
        for t in heads.tiles(batch, head, query) {
            let tile = &mut scratch[..t.queries * t.keys];
            heads.scores(threads, t, q, k, tile);
            heads.hide(t, tile);
            for (i, p) in tile.chunks_exact_mut(t.keys).enumerate() {
                let (now, sum) = exponentials(p, largest[i]);
                if t.key > 0 && now > largest[i] {
                    let correction = (largest[i] - shift(now)).exp();
                    row(i).iter_mut().for_each(|x| *x *= correction);
                    sums[i] *= correction;
                }
                largest[i] = now;
                sums[i] += sum;
            }
            let product = Product {
                m: t.queries,
                n: e.head_size,
                k: t.keys,
                transpose_a: false,
                transpose_b: false,
                accumulate: t.key > 0,
            };
            // SAFETY: as above; `write_part` has checked the last row.
            unsafe {
                product.run_strided(
                    threads,
                    (tile.as_ptr(), t.keys),
                    (v[heads.key_at(t)..].as_ptr(), e.key_heads * e.head_size),
                    (self.outputs[0].as_ptr::<f32>().add(first), width),
                );
            }
        }
        let at = e.row_at(batch, head, query);
        // SAFETY: as above.
        let logsumexp = unsafe { self.outputs[1].write_part::<f32>(at, queries) };
        for (i, to) in logsumexp.iter_mut().enumerate() {
            if sums[i] == 0.0 {
                row(i).fill(0.0);
                *to = 0.0;
                continue;
            }
            let factor = 1.0 / sums[i];
            row(i).iter_mut().for_each(|x| *x *= factor);
            *to = largest[i] + sums[i].ln();
        }
    }
}

/// The gradients of q, k and v.
pub struct GradientTask {
    pub heads: Heads,
    pub output: Memory,
    pub logsumexp: Memory,
    pub gradient: Memory,
    pub gradients: [Memory; 3],
}

impl GradientTask {
    pub fn run(&self, threads: usize) {
        let e = self.heads.extents;
        let pieces = e.batch * e.key_heads;
        let scratch = self.heads.scratch(2);
        let threads = if pieces == 1 { threads } else { 1 };
        (0..pieces).into_par_iter().for_each(|piece| {
            // SAFETY: only this piece runs on this thread now.
            let scratch = unsafe { scratch.take() };
            let (batch, key_head) = (piece / e.key_heads, piece % e.key_heads);
            for key in 0..e.keys {
                let at = e.key_at(batch, key, key_head);
                for to in &self.gradients[1..] {
                    // SAFETY: each piece has a head of its own.
                    unsafe { to.write_part::<f32>(at, e.head_size).fill(0.0) };
                }
            }
            for head in key_head * e.group()..(key_head + 1) * e.group() {
                for query in (0..e.queries).step_by(self.heads.block()) {
                    self.queries(threads, batch, head, query, scratch);
                }
            }
        });
    }

    fn queries(
        &self,
        threads: usize,
        batch: usize,
        head: usize,
        query: usize,
        scratch: &mut [f32],
    ) {
        let (heads, e) = (&self.heads, self.heads.extents);
        // SAFETY: nobody writes to the inputs.
        let [q, k, v, output, logsumexp, gradient] =
            [heads.q, heads.k, heads.v, self.output, self.logsumexp, self.gradient]
                .map(|m| unsafe { m.read::<f32>() });
        let (width, key_width) = (e.heads * e.head_size, e.key_heads * e.head_size);
        let first = e.query_at(batch, query, head);
        let logsumexp = &logsumexp[e.row_at(batch, head, query)..];
        let mut sums = [0.0f32; CPU_QUERIES];
        for (i, sum) in sums.iter_mut().enumerate().take(heads.block().min(e.queries - query)) {
            let row = first + i * width..first + i * width + e.head_size;
            *sum = dot(&gradient[row.clone()], &output[row]);
        }
        for t in heads.tiles(batch, head, query) {
            let (p, rest) = scratch.split_at_mut(t.queries * t.keys);
            let to_scores = &mut rest[..t.queries * t.keys];
            heads.scores(threads, t, q, k, p);
            heads.hide(t, p);
            heads.scores(threads, t, gradient, v, to_scores);
            let rows = p.chunks_exact_mut(t.keys).zip(to_scores.chunks_exact_mut(t.keys));
            for (i, (p, g)) in rows.enumerate() {
                row_gradient(p, g, logsumexp[i], sums[i], heads.op.scale);
            }
            let to_keys = Product {
                m: t.keys,
                n: e.head_size,
                k: t.queries,
                transpose_a: true,
                transpose_b: false,
                accumulate: true,
            };
            let to_queries = Product {
                m: t.queries,
                n: e.head_size,
                k: t.keys,
                transpose_a: false,
                transpose_b: false,
                accumulate: t.key > 0,
            };
            let at = heads.key_at(t);
            // SAFETY: rows of a head lie a row of all heads apart; this piece
            // alone writes the gradients of its heads.
            unsafe {
                let [to_q, to_k, to_v] = self.gradients.map(|m| m.as_ptr::<f32>());
                let (p, s) = ((p.as_ptr(), t.keys), (to_scores.as_ptr(), t.keys));
                let g = (gradient[first..].as_ptr(), width);
                let q = (q[first..].as_ptr(), width);
                to_keys.run_strided(threads, p, g, (to_v.add(at), key_width));
                to_keys.run_strided(threads, s, q, (to_k.add(at), key_width));
                let k = (k[at..].as_ptr(), key_width);
                to_queries.run_strided(threads, s, k, (to_q.add(first), width));
            }
        }
    }
}
