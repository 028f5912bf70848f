//! Saving: chunk by chunk into a file beside the target, then renamed.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::Shapes;
use super::convert::CHUNK_BYTES;
use super::error::WeightsError;
use super::files::FORMAT;
use crate::atomic_file::AtomicFile;

/// Tensors begin at multiples of this in the file.
const ALIGNMENT: usize = 8;

/// Saves f32 tensors as a `.safetensors` file, sorted by name, with the
/// metadata `format: plimsoll`.
///
/// `read` is called with a tensor's name, a byte offset into it, and room for
/// at most [`CHUNK_BYTES`] to fill with native f32; a tensor's chunks are asked
/// for in order. So no second copy of the model is needed. The file takes its
/// place only when it is whole and on the disk: until then, one that stood
/// there stays.
///
/// # Errors
/// [`WeightsError::Write`], [`WeightsError::Tensor`] for a name or shape that
/// the format cannot hold, and what `read` returns.
pub fn save(
    path: impl AsRef<Path>,
    shapes: &Shapes,
    mut read: impl FnMut(&str, u64, &mut [u8]) -> crate::Result<()>,
) -> Result<(), WeightsError> {
    let path = path.as_ref();
    let failed = |source| WeightsError::Write { path: path.to_path_buf(), source };
    let (header, lengths) = header(shapes)?;
    let mut file = AtomicFile::create(path).map_err(failed)?;
    file.write_all(&header).map_err(failed)?;
    let mut chunk = Vec::new();
    for (name, bytes) in shapes.keys().zip(lengths) {
        for offset in (0..bytes).step_by(CHUNK_BYTES) {
            // Room left over from a larger chunk is used again.
            chunk.resize(CHUNK_BYTES.min(bytes - offset), 0);
            read(name, offset as u64, &mut chunk)?;
            if cfg!(target_endian = "big") {
                chunk.chunks_exact_mut(4).for_each(<[u8]>::reverse);
            }
            file.write_all(&chunk).map_err(failed)?;
        }
    }
    file.commit().map_err(failed)
}

/// The bytes before the tensors, and each tensor's length in bytes.
fn header(shapes: &Shapes) -> Result<(Vec<u8>, Vec<usize>), WeightsError> {
    let mut end = 0usize;
    let mut lengths = Vec::with_capacity(shapes.len());
    let mut infos = Vec::with_capacity(shapes.len());
    for (name, shape) in shapes {
        let wrong =
            |reason: &str| WeightsError::Tensor { name: name.clone(), reason: reason.into() };
        if name == "__metadata__" {
            return Err(wrong("the format keeps this name for itself"));
        }
        let bytes = shape.iter().try_fold(4usize, |bytes, n| bytes.checked_mul(*n));
        let (bytes, next) = bytes
            .and_then(|bytes| Some((bytes, end.checked_add(bytes)?)))
            .ok_or_else(|| wrong("the bytes up to its end cannot be counted"))?;
        let info =
            TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets: (end, next) };
        infos.push((name.clone(), info));
        lengths.push(bytes);
        end = next;
    }
    let notes = HashMap::from([("format".to_string(), FORMAT.to_string())]);
    let unfit = |e: String| WeightsError::Tensor { name: "of all names".into(), reason: e };
    let metadata = Metadata::new(Some(notes), infos).map_err(|e| unfit(e.to_string()))?;
    let mut json = serde_json::to_vec(&metadata).map_err(|e| unfit(e.to_string()))?;
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    Ok((header, lengths))
}
