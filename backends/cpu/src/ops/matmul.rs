//! `matmul`: the `gemm` crate for the product, the block evaluator for the
//! epilogue, in place.

use gemm::Parallelism;
use plimsoll_core::ops::Matmul;
use plimsoll_core::ops::matmul::Sizes;
use plimsoll_core::plan::{PlannedNode, types};
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;
use crate::block::{BLOCK, Program};

/// A product with its memory.
pub struct Task {
    sizes: Sizes,
    a: Memory,
    b: Memory,
    output: Memory,
    a_strides: [isize; 2],
    b_strides: [isize; 2],
    /// The product is added to what the output's memory holds.
    accumulate: bool,
    /// What is put there first, unless it is there already. So an addition
    /// gives the same bits whether it is computed in place or not.
    addend: Option<Memory>,
    /// What follows the product, with the inputs of its expression: the
    /// product first.
    epilogue: Option<(Program, Vec<Memory>)>,
}

/// Below this many multiplications threads cost more than they give.
const PARALLEL_FLOPS: usize = 1 << 17;

impl Task {
    pub fn new(op: &Matmul, node: &PlannedNode, inputs: Vec<Memory>, output: Memory) -> Task {
        let s = op.sizes(&types(&node.inputs));
        let results = shape::numel(&[s.batch, s.m, s.n]);
        let adds = |k: &usize| op.accumulates_onto(*k) && node.inputs[*k].tensor.numel() == results;
        let addend = (2..node.inputs.len()).find(adds);
        let accumulate = addend.is_some();
        let elsewhere = |k: &usize| node.inputs[*k].storage != node.outputs[0].storage;
        let addend = addend.filter(elsewhere).map(|k| inputs[k]);
        let to = &node.outputs[0].tensor.shape;
        let epilogue = (!accumulate && !op.epilogue.is_identity()).then(|| {
            let mut shapes: Vec<&[usize]> = vec![to];
            shapes.extend(node.inputs[2..].iter().map(|o| o.tensor.shape.as_slice()));
            let mut memories = vec![output];
            memories.extend(&inputs[2..]);
            (Program::new(&op.epilogue, &shapes, to), memories)
        });
        let stride = |transposed: bool, rows: usize, columns: usize| {
            if transposed { [1, rows as isize] } else { [columns as isize, 1] }
        };
        Task {
            sizes: s,
            a: inputs[0],
            b: inputs[1],
            output,
            a_strides: stride(op.transpose_a, s.m, s.k),
            b_strides: stride(op.transpose_b, s.k, s.n),
            accumulate,
            addend,
            epilogue,
        }
    }

    pub fn run(&self, threads: usize) {
        let Sizes { batch, m, n, k } = self.sizes;
        let work = m * n * k;
        let parallelism = if threads > 1 && work > PARALLEL_FLOPS {
            Parallelism::Rayon(threads)
        } else {
            Parallelism::None
        };
        if let Some(addend) = self.addend {
            // SAFETY: the addend lies elsewhere and has as many elements.
            unsafe { self.output.write::<f32>().copy_from_slice(addend.read::<f32>()) };
        }
        for i in 0..batch {
            // SAFETY: the strides stay within [m, k], [k, n] and [m, n]
            // matrices, `batch` of which make up the tensors; the output
            // overlaps neither input.
            unsafe {
                let (a, b) =
                    (self.a.as_ptr::<f32>().add(i * m * k), self.b.as_ptr::<f32>().add(i * k * n));
                let out = self.output.as_ptr::<f32>().add(i * m * n);
                gemm::gemm(
                    m,
                    n,
                    k,
                    out,
                    1,
                    n as isize,
                    self.accumulate,
                    a,
                    self.a_strides[1],
                    self.a_strides[0],
                    b,
                    self.b_strides[1],
                    self.b_strides[0],
                    1.0,
                    1.0,
                    false,
                    false,
                    false,
                    parallelism,
                );
            }
        }
        if let Some((program, inputs)) = &self.epilogue {
            self.finish(program, inputs);
        }
    }

    fn finish(&self, program: &Program, inputs: &[Memory]) {
        let Sizes { batch, m, n, .. } = self.sizes;
        in_pieces(shape::numel(&[batch, m, n]), PIECE, |start, len| {
            // SAFETY: nobody writes to what is the same everywhere.
            let mut registers = unsafe { program.registers(inputs) };
            for at in (start..start + len).step_by(BLOCK) {
                let now = BLOCK.min(start + len - at);
                // SAFETY: each piece reads and writes its own positions of the
                // output; nobody writes to the other inputs.
                unsafe {
                    program.run(&mut registers, inputs, at, now);
                    let values = &registers[program.outputs[0] as usize].0[..now];
                    self.output.write_part::<u32>(at, now).copy_from_slice(values);
                }
            }
        });
    }
}
