//! Elements of a file as f32, in chunks.

use safetensors::Dtype;

use crate::Result;

/// Most bytes that are handed over at once.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Bytes of an element that can become an f32.
pub(super) fn element_bytes(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::F16 | Dtype::BF16 => Some(2),
        Dtype::F32 => Some(4),
        Dtype::F64 => Some(8),
        _ => None,
    }
}

/// Hands `data`, elements of type `dtype`, over as native f32 bytes, chunk by
/// chunk with the byte at which each begins. `columns` is the length of the
/// file's rows where the matrix is to be transposed.
pub(super) fn emit(
    data: &[u8],
    dtype: Dtype,
    columns: Option<usize>,
    chunk_bytes: usize,
    out: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    match columns {
        // The mapped file as it is: nothing is copied.
        None if dtype == Dtype::F32 && cfg!(target_endian = "little") => {
            let chunks = data.chunks(chunk_bytes.max(4) / 4 * 4);
            let mut offset = 0;
            for chunk in chunks {
                out(offset, chunk)?;
                offset += chunk.len() as u64;
            }
            Ok(())
        }
        None => with_element(dtype, data, |element, count| {
            let per_chunk = (chunk_bytes / 4).max(1);
            let mut floats = Vec::new();
            for first in (0..count).step_by(per_chunk) {
                floats.clear();
                floats.extend((first..count.min(first + per_chunk)).map(element));
                out(4 * first as u64, bytemuck::cast_slice(&floats))?;
            }
            Ok(())
        }),
        // Some columns of the file at once become as many rows of ours, so
        // that both sides are walked in runs.
        Some(columns) => with_element(dtype, data, |element, count| {
            let rows = count.checked_div(columns).unwrap_or(0);
            let per_chunk =
                (chunk_bytes / 4).checked_div(rows).unwrap_or(1).clamp(1, columns.max(1));
            let mut floats = Vec::new();
            for first in (0..columns).step_by(per_chunk) {
                let now = per_chunk.min(columns - first);
                floats.clear();
                floats.resize(now * rows, 0.0);
                for row in 0..rows {
                    for column in 0..now {
                        floats[column * rows + row] = element(row * columns + first + column);
                    }
                }
                out(4 * (first * rows) as u64, bytemuck::cast_slice(&floats))?;
            }
            Ok(())
        }),
    }
}

/// Calls `then` with a function from an element's number to its value, and the
/// number of elements.
fn with_element(
    dtype: Dtype,
    data: &[u8],
    then: impl FnOnce(&dyn Fn(usize) -> f32, usize) -> Result<()>,
) -> Result<()> {
    fn at<const N: usize>(data: &[u8], index: usize) -> [u8; N] {
        std::array::from_fn(|byte| data[N * index + byte])
    }
    match dtype {
        Dtype::F16 => then(&|i| f16(u16::from_le_bytes(at(data, i))), data.len() / 2),
        Dtype::BF16 => then(&|i| bf16(u16::from_le_bytes(at(data, i))), data.len() / 2),
        Dtype::F64 => then(&|i| f64::from_le_bytes(at(data, i)) as f32, data.len() / 8),
        // The check before has refused all other types.
        _ => then(&|i| f32::from_le_bytes(at(data, i)), data.len() / 4),
    }
}

/// IEEE 754 half precision to single, exactly; NaNs keep their sign and bits.
fn f16(bits: u16) -> f32 {
    let (exponent, mantissa) = (u32::from(bits >> 10) & 0x1f, u32::from(bits) & 0x3ff);
    let sign = u32::from(bits >> 15) << 31;
    match exponent {
        // Subnormal: m × 2^−24, which f32 holds exactly.
        0 => f32::from_bits((mantissa as f32 * 2f32.powi(-24)).to_bits() | sign),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
    }
}

/// bfloat16 to single: the upper half of its bits.
fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of the format, in f64.
    fn f16_by_definition(bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
        match exponent {
            0 => sign * mantissa * 2f64.powi(-24),
            0x1f if mantissa == 0.0 => sign * f64::INFINITY,
            0x1f => f64::NAN,
            _ => sign * (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_half_is_exact() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (f16(bits), f16_by_definition(bits));
            let same = f64::from(got) == expected || got.is_nan() && expected.is_nan();
            assert!(same, "{bits:#06x}: {got} instead of {expected}");
            assert_eq!(got.is_sign_negative(), bits >> 15 == 1);
        }
        assert_eq!(bf16(0x3f80), 1.0);
        assert_eq!(bf16(0xc049), -3.140625);
    }

    fn collect(data: &[u8], dtype: Dtype, columns: Option<usize>, chunk: usize) -> Vec<f32> {
        let mut all = Vec::<u8>::new();
        emit(data, dtype, columns, chunk, &mut |offset, bytes| {
            assert_eq!(offset, all.len() as u64);
            assert!(bytes.len() <= chunk.max(4 * columns.map_or(1, |c| data.len() / 4 / c)));
            all.extend(bytes);
            Ok(())
        })
        .expect("nothing fails");
        bytemuck::pod_collect_to_vec(&all)
    }

    #[test]
    fn chunks_join_and_matrices_turn() {
        let floats: Vec<f32> = (0..15).map(|x| x as f32).collect();
        let single: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let double: Vec<u8> = floats.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
        // [3, 5] to [5, 3].
        let turned: Vec<f32> = (0..15).map(|i| (i % 3 * 5 + i / 3) as f32).collect();
        for chunk in [1, 4, 7, 12, 16, 24, 1000] {
            assert_eq!(collect(&single, Dtype::F32, None, chunk), floats);
            assert_eq!(collect(&double, Dtype::F64, None, chunk), floats);
            assert_eq!(collect(&single, Dtype::F32, Some(5), chunk), turned);
        }
        assert!(collect(&[], Dtype::F16, None, 8).is_empty());
    }
}
