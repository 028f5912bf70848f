//! `map`: blocks of the expression, pieces in parallel.

use plimsoll_core::ops::Map;
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;
use crate::block::{BLOCK, Program};

/// A map with its memory.
pub struct Task {
    program: Program,
    inputs: Vec<Memory>,
    outputs: Vec<Memory>,
    numel: usize,
}

impl Task {
    pub fn new(op: &Map, shapes: &[&[usize]], inputs: Vec<Memory>, outputs: Vec<Memory>) -> Task {
        let program = Program::new(&op.expression, shapes, &op.shape);
        Task { program, inputs, outputs, numel: shape::numel(&op.shape) }
    }

    pub fn run(&self) {
        in_pieces(self.numel, PIECE, |start, len| {
            // SAFETY: nobody writes to what is the same everywhere.
            let mut registers = unsafe { self.program.registers(&self.inputs) };
            for at in (start..start + len).step_by(BLOCK) {
                let now = BLOCK.min(start + len - at);
                // SAFETY: outputs are written only by this piece, after all
                // inputs of the block have been read; an output in place of an
                // input is read and written at the same positions.
                unsafe {
                    self.program.run(&mut registers, &self.inputs, at, now);
                    for (memory, term) in self.outputs.iter().zip(&self.program.outputs) {
                        let values = &registers[*term as usize].0[..now];
                        memory.write_part::<u32>(at, now).copy_from_slice(values);
                    }
                }
            }
        });
    }
}
