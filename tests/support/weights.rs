//! Helpers of the tests of weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::weights::{CHUNK_BYTES, Fault, Loaded, NameMap, Shapes, WeightsError, load};

/// Tensors as read.
pub type Tensors = BTreeMap<String, Vec<f32>>;

/// A file that the generator made.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/weights").join(name)
}

/// Shapes by name.
pub fn shape_map(list: &[(&str, &[usize])]) -> Shapes {
    list.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
}

/// The tensors of the small files.
pub fn small() -> Shapes {
    shape_map(&[("a", &[2, 3]), ("b", &[5]), ("c", &[])])
}

/// The generator's value(k, i), for the k-th of the sorted names.
pub fn value(k: usize, i: usize) -> f32 {
    ((37 * k + 5 * i) % 61) as f32 / 8.0 - 30.0 / 8.0
}

/// The first values of the k-th of the sorted names.
pub fn values(k: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| value(k, i)).collect()
}

/// Loads all tensors into vectors.
pub fn load_all(
    path: &Path,
    shapes: &Shapes,
    names: &NameMap,
) -> Result<(Tensors, Loaded), WeightsError> {
    let mut all = BTreeMap::<String, Vec<u8>>::new();
    let loaded = load(path, shapes, names, |name, offset, chunk| {
        let bytes = all.entry(name.to_string()).or_default();
        assert_eq!(bytes.len() as u64, offset);
        assert!(chunk.len() <= CHUNK_BYTES);
        bytes.extend(chunk);
        Ok(())
    })?;
    let float = |bytes: &Vec<u8>| bytemuck::pod_collect_to_vec(bytes);
    Ok((all.iter().map(|(name, bytes)| (name.clone(), float(bytes))).collect(), loaded))
}

/// The faults of a file that does not fit.
pub fn faults(error: WeightsError) -> Vec<Fault> {
    assert_eq!(error.exit_code(), 5);
    match error {
        WeightsError::Mismatch { faults, .. } => faults,
        other => panic!("{other}"),
    }
}
