//! `rope`: angles in integers, the same for all heads of a position.

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// A rotation with its memory; the output may be the input.
pub struct Task {
    /// Positions of a sequence, heads, elements of a head.
    pub sizes: [usize; 3],
    /// Angle from one position to the next of each pair, in 2⁻³² turns.
    pub frequencies: Vec<u32>,
    pub input: Memory,
    pub output: Memory,
}

impl Task {
    pub fn run(&self) {
        let [length, heads, size] = self.sizes;
        let row = heads * size;
        let rows = self.output.len::<f32>() / row;
        if self.input.as_ptr::<f32>() != self.output.as_ptr::<f32>() {
            // SAFETY: they are apart, and nobody writes to the input.
            unsafe { self.output.write::<f32>().copy_from_slice(self.input.read::<f32>()) };
        }
        in_pieces(rows, (PIECE / row).max(1), |first, count| {
            for i in first..first + count {
                // SAFETY: each piece has rows of its own.
                let values = unsafe { self.output.write_part::<f32>(i * row, row) };
                for (pair, frequency) in self.frequencies.iter().enumerate() {
                    let (sin, cos) = sin_cos(((i % length) as u32).wrapping_mul(*frequency));
                    for head in values.chunks_exact_mut(size) {
                        let (a, b) = (head[pair], head[pair + size / 2]);
                        head[pair] = a * cos - b * sin;
                        head[pair + size / 2] = b * cos + a * sin;
                    }
                }
            }
        });
    }
}

/// Sine and cosine of an angle in 2⁻³² turns, within 2 units in the last place
/// of 1: Taylor's series on an eighth of a turn to either side, whose first
/// term left out is below 2⁻²⁷.
fn sin_cos(turns: u32) -> (f32, f32) {
    let quarter = turns.wrapping_add(1 << 29) >> 30;
    let x = turns.wrapping_sub(quarter << 30) as i32 as f32 * (std::f32::consts::TAU / TWO_32);
    let z = x * x;
    let sin = x + x * z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z / 362_880.0)));
    let cos = -1.0 / 720.0 + z * (1.0 / 40_320.0 - z / 3_628_800.0);
    let cos = 1.0 - 0.5 * z + z * z * (1.0 / 24.0 + z * cos);
    match quarter {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

const TWO_32: f32 = 4_294_967_296.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_cosine_all_around() {
        for i in 0..100_003u32 {
            let turns = i.wrapping_mul(42_949);
            let angle = f64::from(turns) / f64::from(TWO_32) * std::f64::consts::TAU;
            let (sin, cos) = sin_cos(turns);
            let error =
                (f64::from(sin) - angle.sin()).abs().max((f64::from(cos) - angle.cos()).abs());
            assert!(error < 2.0 * f64::from(f32::EPSILON), "{turns}: off by {error}");
        }
    }
}
