//! `reduce`: rows in lanes, columns in chunks of rows.

use multiversion::multiversion;
use plimsoll_core::ops::{Reduce, ReduceKind};
use rayon::prelude::*;

use crate::arena::Memory;
use crate::block::{BLOCK, Program, Register};

/// A reduction with its memory.
pub struct Task {
    kind: ReduceKind,
    program: Program,
    inputs: Vec<Memory>,
    output: Memory,
    /// Partial results [outer, chunks, inner], if there are several chunks.
    workspace: Option<Memory>,
    extents: [usize; 3],
    chunks: usize,
}

/// Partial results that a row's blocks are added into.
const LANES: usize = 16;

/// Rows of one piece of work, for rows of this length.
fn rows_of_a_piece(length: usize) -> usize {
    (super::PIECE / length).max(1)
}

impl Task {
    pub fn new(
        op: &Reduce,
        shapes: &[&[usize]],
        inputs: Vec<Memory>,
        output: Memory,
        workspace: Option<Memory>,
    ) -> Task {
        let program = Program::new(&op.prologue, shapes, &op.shape);
        let chunks = op.chunks();
        Task { kind: op.kind, program, inputs, output, workspace, extents: op.extents(), chunks }
    }

    fn start(&self) -> f32 {
        match self.kind {
            ReduceKind::Sum => 0.0,
            ReduceKind::Max => f32::NEG_INFINITY,
        }
    }

    pub fn run(&self) {
        if self.extents[2] == 1 { self.rows() } else { self.columns() }
    }

    /// inner = 1: each row is added up in [`LANES`] lanes, block by block.
    fn rows(&self) {
        let [outer, length, _] = self.extents;
        super::in_pieces(outer, rows_of_a_piece(length), |first, rows| {
            // SAFETY: nobody writes to what is the same everywhere.
            let mut registers = unsafe { self.program.registers(&self.inputs) };
            for row in first..first + rows {
                let mut lanes = [self.start(); LANES];
                for at in (0..length).step_by(BLOCK) {
                    let now = BLOCK.min(length - at);
                    // SAFETY: nobody writes to the inputs.
                    unsafe {
                        self.program.run(&mut registers, &self.inputs, row * length + at, now)
                    };
                    fold_row(self.kind, self.values(&registers), now, &mut lanes);
                }
                let result = lanes.into_iter().reduce(|a, b| combine(self.kind, a, b));
                // SAFETY: each row is written by one piece.
                let place = unsafe { self.output.write_part::<f32>(row, 1) };
                place[0] = result.unwrap_or(self.start());
            }
        });
    }

    fn values<'a>(&self, registers: &'a [Register]) -> &'a [u32; BLOCK] {
        &registers[self.program.outputs[0] as usize].0
    }

    /// Columns: each piece adds up the rows of a chunk for a block of columns.
    fn columns(&self) {
        let [outer, length, inner] = self.extents;
        let target = self.workspace.unwrap_or(self.output);
        let chunk_rows = length.div_ceil(self.chunks);
        let blocks = inner.div_ceil(BLOCK);
        (0..outer * self.chunks * blocks).into_par_iter().for_each(|piece| {
            let (block, chunk) = (piece % blocks, piece / blocks % self.chunks);
            let o = piece / blocks / self.chunks;
            let column = block * BLOCK;
            let now = BLOCK.min(inner - column);
            // SAFETY: nobody writes to what is the same everywhere.
            let mut registers = unsafe { self.program.registers(&self.inputs) };
            let mut sums = [self.start(); BLOCK];
            let rows = chunk * chunk_rows..((chunk + 1) * chunk_rows).min(length);
            for row in rows {
                let at = (o * length + row) * inner + column;
                // SAFETY: nobody writes to the inputs.
                unsafe { self.program.run(&mut registers, &self.inputs, at, now) };
                fold_columns(self.kind, self.values(&registers), &mut sums);
            }
            let at = (o * self.chunks + chunk) * inner + column;
            // SAFETY: each piece writes its own columns.
            unsafe { target.write_part::<f32>(at, now) }.copy_from_slice(&sums[..now]);
        });
        if let Some(partial) = self.workspace {
            self.join_chunks(partial);
        }
    }

    /// [outer, chunks, inner] → [outer, inner], chunks in order.
    fn join_chunks(&self, partial: Memory) {
        let [outer, _, inner] = self.extents;
        // SAFETY: the partial results are complete; the output is ours alone.
        let (partial, out) = unsafe { (partial.read::<f32>(), self.output.write::<f32>()) };
        for o in 0..outer {
            let out = &mut out[o * inner..(o + 1) * inner];
            let from = |c: usize| &partial[(o * self.chunks + c) * inner..][..inner];
            out.copy_from_slice(from(0));
            for c in 1..self.chunks {
                out.iter_mut().zip(from(c)).for_each(|(o, x)| *o = combine(self.kind, *o, *x));
            }
        }
    }
}

#[inline(always)]
fn combine(kind: ReduceKind, a: f32, b: f32) -> f32 {
    match kind {
        ReduceKind::Sum => a + b,
        // A NaN on either side stays.
        ReduceKind::Max => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
    }
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn fold_row(kind: ReduceKind, values: &[u32; BLOCK], len: usize, lanes: &mut [f32; LANES]) {
    let (whole, rest) = values[..len].as_chunks::<LANES>();
    match kind {
        ReduceKind::Sum => {
            for chunk in whole {
                for l in 0..LANES {
                    lanes[l] += f32::from_bits(chunk[l]);
                }
            }
        }
        ReduceKind::Max => {
            for chunk in whole {
                for l in 0..LANES {
                    lanes[l] = combine(ReduceKind::Max, lanes[l], f32::from_bits(chunk[l]));
                }
            }
        }
    }
    for (l, x) in rest.iter().enumerate() {
        lanes[l] = combine(kind, lanes[l], f32::from_bits(*x));
    }
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn fold_columns(kind: ReduceKind, values: &[u32; BLOCK], sums: &mut [f32; BLOCK]) {
    match kind {
        ReduceKind::Sum => {
            for i in 0..BLOCK {
                sums[i] += f32::from_bits(values[i]);
            }
        }
        ReduceKind::Max => {
            for i in 0..BLOCK {
                sums[i] = combine(ReduceKind::Max, sums[i], f32::from_bits(values[i]));
            }
        }
    }
}
