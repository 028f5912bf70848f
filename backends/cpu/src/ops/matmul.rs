//! `matmul`: the `gemm` crate for the product, the block evaluator for the
//! epilogue, in place.

use gemm::Parallelism;
use plimsoll_core::expression::Expression;
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
        let width = |transposed: bool, rows: usize, columns: usize| {
            if transposed { rows } else { columns }
        };
        let (a_width, b_width) = (width(self.transpose_a, m, k), width(self.transpose_b, k, n));
        // SAFETY: the caller's promise.
        unsafe { self.run_strided(threads, (a, a_width), (b, b_width), (out, n)) }
    }

    /// [`Product::run`] for matrices whose rows, as they are stored, start so
    /// many elements apart.
    ///
    /// # Safety
    /// As [`Product::run`].
    pub unsafe fn run_strided(
        &self,
        threads: usize,
        a: (*const f32, usize),
        b: (*const f32, usize),
        out: (*mut f32, usize),
    ) {
        let Product { m, n, k, .. } = *self;
        // Along rows and along columns.
        let strides = |transposed: bool, width: usize| {
            if transposed { [1, width as isize] } else { [width as isize, 1] }
        };
        let (a_strides, b_strides) =
            (strides(self.transpose_a, a.1), strides(self.transpose_b, b.1));
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
                out.0,
                1,
                out.1 as isize,
                self.accumulate,
                a.0,
                a_strides[1],
                a_strides[0],
                b.0,
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

/// What follows a product: an expression of its elements and other tensors, in
/// place.
pub struct Epilogue {
    program: Program,
    /// The inputs of the expression, the product first.
    inputs: Vec<Memory>,
    numel: usize,
}

impl Epilogue {
    /// The epilogue of a node, whose inputs from the third on it reads; `None`
    /// if there is nothing to do.
    pub fn new(
        expression: &Expression,
        node: &PlannedNode,
        inputs: &[Memory],
        output: Memory,
    ) -> Option<Epilogue> {
        if expression.is_identity() {
            return None;
        }
        let to = &node.outputs[0].tensor.shape;
        let mut shapes: Vec<&[usize]> = vec![to];
        shapes.extend(node.inputs[2..].iter().map(|o| o.tensor.shape.as_slice()));
        let mut memories = vec![output];
        memories.extend(&inputs[2..]);
        let program = Program::new(expression, &shapes, to);
        Some(Epilogue { program, inputs: memories, numel: shape::numel(to) })
    }

    /// Turns the products in `output` into what the expression makes of them.
    pub fn run(&self, output: Memory) {
        let Epilogue { program, inputs, numel } = self;
        in_pieces(*numel, PIECE, |start, len| {
            // SAFETY: nobody writes to what is the same everywhere.
            let mut registers = unsafe { program.registers(inputs) };
            for at in (start..start + len).step_by(BLOCK) {
                let now = BLOCK.min(start + len - at);
                // SAFETY: each piece reads and writes its own positions of the
                // output; nobody writes to the other inputs.
                unsafe {
                    program.run(&mut registers, inputs, at, now);
                    let values = &registers[program.outputs[0] as usize].0[..now];
                    output.write_part::<u32>(at, now).copy_from_slice(values);
                }
            }
        });
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
    epilogue: Option<Epilogue>,
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
        let epilogue = match accumulate {
            true => None,
            false => Epilogue::new(&op.epilogue, node, &inputs, output),
        };
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
        if let Some(epilogue) = &self.epilogue {
            epilogue.run(self.output);
        }
    }
}
