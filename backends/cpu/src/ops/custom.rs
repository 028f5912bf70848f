//! `custom`: the op's own code.

use plimsoll_core::ops::custom::{HostTensor, HostTensorMut};
use plimsoll_core::ops::{Custom, TensorType};

use crate::arena::Memory;

/// The op with its memory.
pub struct Task {
    pub op: Custom,
    pub inputs: Vec<(Memory, TensorType)>,
    pub outputs: Vec<(Memory, TensorType)>,
}

impl Task {
    pub fn run(&self) {
        let bytes = |t: &TensorType| t.numel() * t.dtype.size_bytes();
        let inputs: Vec<HostTensor<'_>> = self
            .inputs
            .iter()
            // SAFETY: nobody writes to the inputs.
            .map(|(m, tensor)| HostTensor {
                tensor,
                bytes: unsafe { &m.read::<u8>()[..bytes(tensor)] },
            })
            .collect();
        let mut outputs: Vec<HostTensorMut<'_>> = self
            .outputs
            .iter()
            // SAFETY: the outputs overlap neither each other nor the inputs,
            // since the op computes nothing in place.
            .map(|(m, tensor)| HostTensorMut {
                tensor,
                bytes: unsafe { m.write_part::<u8>(0, bytes(tensor)) },
            })
            .collect();
        self.op.compute(&inputs, &mut outputs);
    }
}
