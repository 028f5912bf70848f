//! Loading: all is checked before the first tensor is handed over.

use std::collections::BTreeMap;
use std::path::Path;

use super::Shapes;
use super::convert::{CHUNK_BYTES, element_bytes, emit};
use super::error::{Fault, WeightsError};
use super::files::Files;
use super::names::{NameMap, Target};

/// What was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// How many tensors the model got: all that it has.
    pub tensors: usize,
    /// Tensors of the file that were passed over, by its names, sorted.
    pub ignored: Vec<String>,
}

/// Loads weights from a `.safetensors` file, from a sharded set by its
/// `*.index.json`, or from a folder that holds either.
///
/// `shapes` are the tensors that the model has, `names` tells which of the
/// file's each of them is. `write` is called with a tensor's name, the byte at
/// which a chunk begins, and the chunk: native f32, at most [`CHUNK_BYTES`]
/// long, of any alignment. The chunks of a tensor come in order and whole.
/// Tensors come in the order of their names. F16, BF16 and F64 become f32
/// element by element.
///
/// A file that [`save`](super::save) wrote has the model's own names and layout: of
/// `names` the rules of [`NameMap::from_json_file`] alone apply to it.
///
/// The files are mapped, never copied whole. Nothing is handed over unless
/// every tensor fits, so that a model is not left half loaded.
///
/// # Errors
/// [`WeightsError::Mismatch`] with all that does not fit, errors of the files,
/// and what `write` returns.
pub fn load(
    path: impl AsRef<Path>,
    shapes: &Shapes,
    names: &NameMap,
    mut write: impl FnMut(&str, u64, &[u8]) -> crate::Result<()>,
) -> Result<Loaded, WeightsError> {
    let path = path.as_ref();
    let files = Files::open(path)?;
    // A publisher's prefixes and transposed matrices are not in our own files.
    let own_names = names.without_publisher();
    let names = if files.own { &own_names } else { names };
    let mut faults = Vec::new();
    let mut ignored = Vec::new();
    // The model's name to the file's, and whether to transpose.
    let mut sources = BTreeMap::<String, (&String, bool)>::new();
    for (file_name, stored) in &files.tensors {
        match names.target(file_name, |name| shapes.contains_key(name)) {
            Target::Ignored => ignored.push(file_name.clone()),
            Target::Tensor { name, .. } if !shapes.contains_key(&name) => {
                faults.push(Fault::Extra { name: file_name.clone(), shape: stored.shape.clone() });
            }
            Target::Tensor { name, transpose } => {
                if let Some((other, _)) = sources.get(&name) {
                    let files = [(*other).clone(), file_name.clone()];
                    faults.push(Fault::Double { name, files });
                } else {
                    sources.insert(name, (file_name, transpose));
                }
            }
        }
    }
    for (name, shape) in shapes {
        let Some((file_name, transpose)) = sources.get(name) else {
            faults.push(Fault::Missing { name: name.clone(), shape: shape.clone() });
            continue;
        };
        let stored = &files.tensors[*file_name];
        let mut expected = shape.clone();
        if *transpose {
            expected.reverse();
        }
        // Only matrices can be transposed.
        if stored.shape != expected || (*transpose && shape.len() != 2) {
            let found = stored.shape.clone();
            faults.push(Fault::WrongShape { name: name.clone(), expected, found });
        }
        if element_bytes(stored.dtype).is_none() {
            let found = format!("{:?}", stored.dtype);
            faults.push(Fault::WrongType { name: name.clone(), found });
        }
    }
    if !faults.is_empty() {
        faults.sort();
        return Err(WeightsError::Mismatch { path: path.to_path_buf(), faults });
    }
    for (name, (file_name, transpose)) in &sources {
        let stored = &files.tensors[*file_name];
        let columns = transpose.then(|| stored.shape[1]);
        let mut out = |offset: u64, chunk: &[u8]| write(name, offset, chunk);
        emit(files.data(stored), stored.dtype, columns, CHUNK_BYTES, &mut out)?;
    }
    Ok(Loaded { tensors: sources.len(), ignored })
}
