//! `matmul`: the `gemm` crate for the product, the block evaluator for the
//! epilogue, in place.

use gemm::Parallelism;
use plimsoll_core::ops::Matmul;
use plimsoll_core::plan::{PlannedNode, types};
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;
use crate::block::{BLOCK, Program};

/// Below this many multiplications threads cost more than they give.
const PARALLEL_FLOPS: usize = 1 << 17;

/// A plain product of matrices, by the `gemm` crate.
pub struct Product {
    /// Rows of A, columns of B, and what they share.
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Whether A is stored as [k, m], B as [n, k].
    pub transpose_a: bool,
    pub transpose_b: bool,
    /// Whether the product is added to what is there.
    pub accumulate: bool,
}

impl Product {
    /// Computes [m, n] at `out`.
    ///
    /// # Safety
    /// The pointers are to as many elements as the matrices have; nobody else
    /// touches the result, which overlaps neither A nor B.
    pub unsafe fn run(&self, threads: usize, a: *const f32, b: *const f32, out: *mut f32) {
        let Product { m, n, k, .. } = *self;
        let strides = |transposed: bool, rows: usize, columns: usize| {
            if transposed { [1, rows as isize] } else { [columns as isize, 1] }
        };
        let (a_strides, b_strides) =
            (strides(self.transpose_a, m, k), strides(self.transpose_b, k, n));
        let parallelism = if threads > 1 && m * n * k > PARALLEL_FLOPS {
            Parallelism::Rayon(threads)
        } else {
            Parallelism::None
        };
        // SAFETY: the strides stay within [m, k], [k, n] and [m, n] matrices;
        // the rest is the caller's promise.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out,
                1,
                n as isize,
                self.accumulate,
                a,
                a_strides[1],
                a_strides[0],
                b,
                b_strides[1],
                b_strides[0],
                1.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

/// A product with its memory.
pub struct Task {
    batch: usize,
    product: Product,
    a: Memory,
    b: Memory,
    output: Memory,
    /// What is put there first, unless it is there already. So an addition
    /// gives the same bits whether it is computed in place or not.
    addend: Option<Memory>,
    /// What follows the product, with the inputs of its expression: the
    /// product first.
    epilogue: Option<(Program, Vec<Memory>)>,
}

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
        let product = Product {
            m: s.m,
            n: s.n,
            k: s.k,
            transpose_a: op.transpose_a,
            transpose_b: op.transpose_b,
            accumulate,
        };
        Task { batch: s.batch, product, a: inputs[0], b: inputs[1], output, addend, epilogue }
    }

    pub fn run(&self, threads: usize) {
        let Product { m, n, k, .. } = self.product;
        if let Some(addend) = self.addend {
            // SAFETY: the addend lies elsewhere and has as many elements.
            unsafe { self.output.write::<f32>().copy_from_slice(addend.read::<f32>()) };
        }
        for i in 0..self.batch {
            // SAFETY: the tensors are `batch` matrices each; the output
            // overlaps neither input.
            unsafe {
                let (a, b) =
                    (self.a.as_ptr::<f32>().add(i * m * k), self.b.as_ptr::<f32>().add(i * k * n));
                self.product.run(threads, a, b, self.output.as_ptr::<f32>().add(i * m * n));
            }
        }
        if let Some((program, inputs)) = &self.epilogue {
            self.finish(program, inputs);
        }
    }

    fn finish(&self, program: &Program, inputs: &[Memory]) {
        let Product { m, n, .. } = self.product;
        in_pieces(shape::numel(&[self.batch, m, n]), PIECE, |start, len| {
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
