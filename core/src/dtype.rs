//! Element types of tensors.

use serde::{Deserialize, Serialize};

/// The type in which a tensor's elements are stored.
///
/// Arithmetic happens in [`Scalar`](crate::expression::Scalar) types: the
/// three float types compute in f32, `U8` computes in u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision (a storage type; not computed yet).
    F16,
    /// bfloat16 (a storage type; not computed yet).
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned byte: raw image data. Devices read it, but no op writes it.
    U8,
}

impl DType {
    /// Bytes that one element takes.
    pub fn size_bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 => 1,
        }
    }

    /// The name in lower case, as in messages and JSON.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
