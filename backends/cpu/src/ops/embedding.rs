//! `embedding` and its gradient.

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// Rows of a table by index.
pub struct Task {
    pub rows: usize,
    pub width: usize,
    pub table: Memory,
    pub indices: Memory,
    pub output: Memory,
}

impl Task {
    pub fn run(&self) {
        // SAFETY: nobody writes to the inputs.
        let (table, indices) = unsafe { (self.table.read::<f32>(), self.indices.read::<i32>()) };
        in_pieces(indices.len(), (PIECE / self.width).max(1), |start, len| {
            for (i, index) in indices.iter().enumerate().skip(start).take(len) {
                // SAFETY: each index has a row of its own.
                let out = unsafe { self.output.write_part::<f32>(i * self.width, self.width) };
                match usize::try_from(*index) {
                    Ok(row) if row < self.rows => {
                        out.copy_from_slice(&table[row * self.width..][..self.width])
                    }
                    _ => out.fill(f32::NAN),
                }
            }
        });
    }
}

/// The sum of gradients by row.
pub struct GradientTask {
    pub rows: usize,
    pub width: usize,
    pub indices: Memory,
    pub gradient: Memory,
    pub output: Memory,
}

impl GradientTask {
    /// Each piece owns a range of rows and walks all indices in order, so the
    /// sums do not depend on the pieces.
    pub fn run(&self) {
        // SAFETY: nobody writes to the inputs.
        let (indices, gradient) =
            unsafe { (self.indices.read::<i32>(), self.gradient.read::<f32>()) };
        let piece = self.rows.div_ceil(16).max((PIECE / self.width).max(1));
        in_pieces(self.rows, piece, |first, rows| {
            // SAFETY: each piece has rows of its own.
            let out =
                unsafe { self.output.write_part::<f32>(first * self.width, rows * self.width) };
            out.fill(0.0);
            for (i, index) in indices.iter().enumerate() {
                let Ok(row) = usize::try_from(*index) else { continue };
                if (first..first + rows).contains(&row) {
                    let target = &mut out[(row - first) * self.width..][..self.width];
                    let from = &gradient[i * self.width..][..self.width];
                    target.iter_mut().zip(from).for_each(|(o, g)| *o += g);
                }
            }
        });
    }
}
