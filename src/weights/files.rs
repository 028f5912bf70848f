//! The files behind a path: one, a sharded set, or a folder of either. Mapped,
//! with the place of every tensor.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::error::WeightsError;
use crate::mapped::Bytes;

/// Bytes of a file's header length.
const LENGTH_BYTES: usize = 8;

/// A tensor in one of the files.
pub(super) struct Stored {
    file: usize,
    bytes: Range<usize>,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
}

/// What the metadata of our own files has as its format.
pub(super) const FORMAT: &str = "plimsoll";

/// All files of a set of weights.
pub(super) struct Files {
    maps: Vec<Bytes>,
    pub(super) tensors: BTreeMap<String, Stored>,
    /// Whether [`save`](super::save) wrote them, in the model's own layout.
    pub(super) own: bool,
}

impl Files {
    pub(super) fn open(path: &Path) -> Result<Files, WeightsError> {
        let metadata = fs::metadata(path).map_err(|source| open_error(path, source))?;
        let path = if metadata.is_dir() { find(path)? } else { path.to_path_buf() };
        let mut files = Files { maps: Vec::new(), tensors: BTreeMap::new(), own: false };
        match path.extension().is_some_and(|e| e == "json") {
            true => files.add_index(&path)?,
            false => files.add(&path)?,
        }
        Ok(files)
    }

    pub(super) fn data(&self, tensor: &Stored) -> &[u8] {
        &self.maps[tensor.file][tensor.bytes.clone()]
    }

    fn add(&mut self, path: &Path) -> Result<(), WeightsError> {
        let map = Bytes::map(path).map_err(|source| open_error(path, source))?;
        // This checks the header, that every tensor lies in the file and has
        // the bytes of its shape, and that they fill the file.
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| {
            WeightsError::Format { path: path.to_path_buf(), reason: e.to_string() }
        })?;
        let format = metadata.metadata().as_ref().and_then(|notes| notes.get("format"));
        self.own = format.is_some_and(|f| f == FORMAT);
        let begin = LENGTH_BYTES + header;
        for (name, info) in metadata.tensors() {
            let (first, end) = info.data_offsets;
            let stored = Stored {
                file: self.maps.len(),
                bytes: begin + first..begin + end,
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            if self.tensors.insert(name.clone(), stored).is_some() {
                return Err(WeightsError::Format {
                    path: path.to_path_buf(),
                    reason: format!("the tensor {name} is in another file of the set too"),
                });
            }
        }
        self.maps.push(map);
        Ok(())
    }

    /// Adds the files of an index: `{"weight_map": {"tensor": "file"}}`.
    fn add_index(&mut self, path: &Path) -> Result<(), WeightsError> {
        let wrong = |reason: String| WeightsError::Index { path: path.to_path_buf(), reason };
        let text = fs::read(path).map_err(|source| open_error(path, source))?;
        let index: Value = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        let map = index.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| wrong("it has no object \"weight_map\"".into()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut by_file = BTreeMap::<&str, Vec<&String>>::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|name| is_plain(name)).ok_or_else(|| {
                wrong(format!("{tensor} is said to be in {file}, which is no name of a file"))
            })?;
            by_file.entry(file).or_default().push(tensor);
        }
        for (file, tensors) in by_file {
            let number = self.maps.len();
            self.add(&folder.join(file))?;
            let here = |t: &&&String| self.tensors.get(**t).is_some_and(|t| t.file == number);
            if let Some(tensor) = tensors.iter().find(|t| !here(t)) {
                return Err(wrong(format!("{tensor} is not in {file}, as it says")));
            }
        }
        Ok(())
    }
}

fn open_error(path: &Path, source: std::io::Error) -> WeightsError {
    WeightsError::Open { path: path.to_path_buf(), source }
}

/// Whether it is the name of a file beside the index, and leads nowhere else.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

/// The file or index that a folder holds. As elsewhere `model.safetensors` goes
/// first; otherwise there must be a single index, or a single file.
fn find(folder: &Path) -> Result<PathBuf, WeightsError> {
    let mut indices = Vec::new();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| open_error(folder, source))? {
        let path = entry.map_err(|source| open_error(folder, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "model.safetensors" && path.is_file() {
            return Ok(path);
        } else if name.ends_with(".safetensors.index.json") {
            indices.push(path);
        } else if name.ends_with(".safetensors") {
            files.push(path);
        }
    }
    let mut found = if indices.is_empty() { files } else { indices };
    found.sort();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(WeightsError::Folder {
            folder: folder.to_path_buf(),
            reason: "it holds no .safetensors file and no .safetensors.index.json; name the \
                     folder or the file that does"
                .into(),
        }),
        many => {
            let name = |p: &PathBuf| p.file_name().unwrap_or_default().display().to_string();
            Err(WeightsError::Folder {
                folder: folder.to_path_buf(),
                reason: format!(
                    "it holds {}; name the one that is meant",
                    many.iter().map(name).collect::<Vec<_>>().join(", ")
                ),
            })
        }
    }
}
