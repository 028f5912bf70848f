//! Labelled images for training: IDX files, an embedded sample, and shuffled,
//! prefetched batches.
//!
//! Everything here lives in host memory and on the CPU. Images stay unsigned
//! bytes, as the files hold them; a model casts and scales them itself, so that
//! a quarter of the bytes of 32-bit floats travel to the device.
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll::data::{Batches, embedded_sample};
//!
//! let data = embedded_sample()?;
//! let train = Arc::new(data.train);
//! let mut batches = Batches::training(train.clone(), 64, /* seed */ 1, /* epoch */ 0)?;
//! while let Some(batch) = batches.next() {
//!     assert_eq!(batch.batch()["images"].len(), batch.count * train.item_bytes());
//!     batches.recycle(batch);
//! }
//! # Ok::<(), plimsoll::data::DataError>(())
//! ```

mod batches;
mod dataset;
mod error;
mod idx;
#[cfg(test)]
mod idx_fixture;
mod image_folder;
mod images;
mod latents;
mod npy;
mod shuffle;
mod text;
mod volumes;

pub use batches::Batches;
pub use dataset::{Dataset, Items, Split};
pub use error::{DataError, Place};
pub use idx::{IdxArray, read_idx, read_idx_file};
pub use image_folder::{LabelledImages, image_folder};
pub use images::{CLASSES, ImageDataset, TrainTest, embedded_sample, load_folder};
pub use latents::Latents;
pub use npy::NpyArray;
pub use shuffle::shuffled_order;
pub use text::{Question, TokenWindows, Tokens, bigram_loss};
pub use volumes::{Patches, Volume};
