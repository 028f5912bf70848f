//! Weights in [safetensors](https://huggingface.co/docs/safetensors) files:
//! saved chunk by chunk, loaded from mapped files, under the names that a
//! model's publisher gave them.
//!
//! ```
//! use std::collections::BTreeMap;
//! use plimsoll::weights::{NameMap, load, save};
//!
//! # fn main() -> Result<(), plimsoll::weights::WeightsError> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("model.safetensors");
//! let shapes = BTreeMap::from([("fc.weight".to_string(), vec![2, 3])]);
//! let weights: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let bytes: &[u8] = bytemuck::cast_slice(&weights);
//! save(&path, &shapes, |_name, offset, chunk| {
//!     chunk.copy_from_slice(&bytes[offset as usize..][..chunk.len()]);
//!     Ok(())
//! })?;
//! let mut read = vec![0; 24];
//! load(&path, &shapes, &NameMap::identity(), |_name, offset, chunk| {
//!     read[offset as usize..][..chunk.len()].copy_from_slice(chunk);
//!     Ok(())
//! })?;
//! assert_eq!(read, bytes);
//! # Ok(())
//! # }
//! ```

mod convert;
mod error;
mod files;
mod load;
mod model;
mod names;
mod save;

use std::collections::BTreeMap;

pub use convert::CHUNK_BYTES;
pub use error::{Fault, WeightsError};
pub use load::{Loaded, load};
pub use model::{load_model, save_model, shapes};
pub use names::{NameMap, Target};
pub use save::save;

/// Tensors by name, with their shapes; all are f32.
pub type Shapes = BTreeMap<String, Vec<usize>>;
