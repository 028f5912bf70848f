//! Data sets of labelled images: from a folder of IDX files, or embedded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dataset::{Dataset, Split};
use super::error::DataError;
use super::idx::{IdxArray, read_idx, read_idx_file};

/// The number of classes of MNIST, Fashion-MNIST and their kin.
pub const CLASSES: usize = 10;

/// Labelled images of one shape, whole in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDataset {
    /// The pixels, item after item, each in row-major order; 0 to 255. Its
    /// length is `items() * item_bytes()`.
    pub images: Vec<u8>,
    /// The class of every item, from 0 to below `classes`.
    pub labels: Vec<i32>,
    /// The shape of one item, `[rows, columns]` for grey images (28×28 for
    /// MNIST), `[channels, rows, columns]` for others.
    pub item_shape: Vec<usize>,
    /// The number of classes.
    pub classes: usize,
}

impl ImageDataset {
    /// The number of items.
    pub fn items(&self) -> usize {
        self.labels.len()
    }

    /// The bytes of one image: the product of `item_shape`.
    pub fn item_bytes(&self) -> usize {
        self.item_shape.iter().product()
    }

    /// Joins images of the shape `[items, rows, columns]` and labels of the
    /// shape `[items]`, as read by [`read_idx_file`].
    ///
    /// # Errors
    ///
    /// [`DataError::CountMismatch`] if there are not as many labels as images,
    /// [`DataError::LabelOutOfRange`] if a label is not below `classes`, and
    /// [`DataError::WrongRank`] if the arrays have other shapes.
    pub fn from_idx(
        images: IdxArray,
        labels: &IdxArray,
        classes: usize,
    ) -> Result<Self, DataError> {
        images.expect_rank(3)?;
        labels.expect_rank(1)?;
        if images.shape[0] != labels.shape[0] {
            return Err(DataError::CountMismatch {
                place: images.shape_place(),
                labels_file: labels.file().to_path_buf(),
                images: images.shape[0],
                labels: labels.shape[0],
            });
        }
        if let Some(index) = labels.bytes.iter().position(|&label| usize::from(label) >= classes) {
            return Err(DataError::LabelOutOfRange {
                place: labels.element_place(index),
                value: labels.bytes[index],
                classes,
            });
        }
        Ok(Self {
            labels: labels.bytes.iter().map(|&label| label.into()).collect(),
            item_shape: images.shape[1..].to_vec(),
            images: images.bytes,
            classes,
        })
    }

    /// Checks that the fields fit together, since anyone may set them.
    ///
    /// # Errors
    ///
    /// [`DataError::NoItems`], or [`DataError::Inconsistent`] if `images` has not the bytes of as many
    /// items as there are labels, if a label is not below `classes`, or if there
    /// are more items than a `u32` counts.
    pub fn check(&self) -> Result<(), DataError> {
        let inconsistent = |reason: String| Err(DataError::Inconsistent { reason });
        if self.labels.is_empty() {
            return Err(DataError::NoItems);
        }
        let expected = self
            .item_shape
            .iter()
            .try_fold(self.items(), |product, &length| product.checked_mul(length));
        if expected != Some(self.images.len()) {
            return inconsistent(format!(
                "{} labels and items of the shape {:?}, but {} bytes of images",
                self.items(),
                self.item_shape,
                self.images.len()
            ));
        }
        if u32::try_from(self.items()).is_err() {
            return inconsistent(format!(
                "{} items, more than 4,294,967,295; split it",
                self.items()
            ));
        }
        let in_range =
            |&label: &i32| usize::try_from(label).is_ok_and(|label| label < self.classes);
        match self.labels.iter().position(|label| !in_range(label)) {
            Some(index) => inconsistent(format!(
                "label {} of item {index} is not one of {} classes",
                self.labels[index], self.classes
            )),
            None => Ok(()),
        }
    }
}

impl Dataset for ImageDataset {
    fn items(&self) -> usize {
        self.labels.len()
    }

    fn inputs(&self) -> Vec<(&'static str, usize)> {
        vec![("images", self.item_bytes()), ("labels", 4)]
    }

    fn item(&self, item: usize, _draw: u64, inputs: &mut [&mut [u8]]) {
        let bytes = self.item_bytes();
        inputs[0].copy_from_slice(&self.images[item * bytes..][..bytes]);
        inputs[1].copy_from_slice(&self.labels[item].to_ne_bytes());
    }

    fn check(&self) -> Result<(), DataError> {
        ImageDataset::check(self)
    }
}

impl From<TrainTest> for Split {
    fn from(data: TrainTest) -> Split {
        Split { train: Arc::new(data.train), test: Arc::new(data.test), source: data.source }
    }
}

/// The two parts of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainTest {
    /// What a model learns from.
    pub train: ImageDataset,
    /// What it is judged by; its items have the shape of those of `train`.
    pub test: ImageDataset,
    /// Where the data comes from, for people to read.
    pub source: String,
}

/// Loads the four IDX files of MNIST, Fashion-MNIST or a data set of the same
/// form ([`CLASSES`] classes) from a folder.
///
/// The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
/// `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, raw or gzipped, with
/// or without `.gz`; the first hyphen before `idx` may be a dot. A raw name goes
/// before a gzipped one.
///
/// # Errors
///
/// [`DataError::FolderMissing`], [`DataError::NotAFolder`] and
/// [`DataError::FileMissing`] if the files are not there,
/// [`DataError::ShapeMismatch`] if training and test images differ in shape,
/// and those of [`read_idx_file`] and [`ImageDataset::from_idx`].
pub fn load_folder(path: impl AsRef<Path>) -> Result<TrainTest, DataError> {
    let folder = path.as_ref();
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(DataError::NotAFolder { path: folder.to_path_buf() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataError::FolderMissing { folder: folder.to_path_buf() });
        }
        Err(source) => {
            return Err(DataError::Open { path: folder.to_path_buf(), source });
        }
    }
    // All four are sought before the first is read: a missing one is told at once.
    let train_images = find_file(folder, "training images", "train-images", 3)?;
    let train_labels = find_file(folder, "training labels", "train-labels", 1)?;
    let test_images = find_file(folder, "test images", "t10k-images", 3)?;
    let test_labels = find_file(folder, "test labels", "t10k-labels", 1)?;
    join(
        [read_idx_file(train_images, 3)?, read_idx_file(test_images, 3)?],
        [read_idx_file(train_labels, 1)?, read_idx_file(test_labels, 1)?],
        folder.display().to_string(),
    )
}

/// The sample of Fashion-MNIST that is built into the program: 1,000 training
/// and 250 test images of 28×28, as many of every class.
///
/// It serves to see a model learn without a download; it is too small to judge
/// one.
///
/// # Errors
///
/// Those of [`read_idx`], if the program was built from damaged files.
pub fn embedded_sample() -> Result<TrainTest, DataError> {
    macro_rules! embedded {
        ($name:literal, $rank:literal) => {
            read_idx(
                include_bytes!(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/demos/fashion_mnist/data/",
                    $name
                ))
                .as_slice(),
                concat!("embedded ", $name),
                $rank,
            )?
        };
    }
    join(
        [embedded!("train-images-idx3-ubyte.gz", 3), embedded!("t10k-images-idx3-ubyte.gz", 3)],
        [embedded!("train-labels-idx1-ubyte.gz", 1), embedded!("t10k-labels-idx1-ubyte.gz", 1)],
        "embedded sample of Fashion-MNIST".to_owned(),
    )
}

/// Makes a data set of the images and labels, training before test.
fn join(
    [train_images, test_images]: [IdxArray; 2],
    [train_labels, test_labels]: [IdxArray; 2],
    source: String,
) -> Result<TrainTest, DataError> {
    let test_place = test_images.shape_place();
    let train = ImageDataset::from_idx(train_images, &train_labels, CLASSES)?;
    let test = ImageDataset::from_idx(test_images, &test_labels, CLASSES)?;
    if train.item_shape != test.item_shape {
        return Err(DataError::ShapeMismatch {
            place: test_place,
            train: train.item_shape,
            test: test.item_shape,
        });
    }
    Ok(TrainTest { train, test, source })
}

/// The first file of `folder` with one of the names that `stem` may have.
fn find_file(
    folder: &Path,
    what: &'static str,
    stem: &str,
    rank: usize,
) -> Result<PathBuf, DataError> {
    let looked_for = ["", ".gz"]
        .map(|end| ["-", "."].map(|separator| format!("{stem}{separator}idx{rank}-ubyte{end}")));
    let looked_for: Vec<String> = looked_for.into_iter().flatten().collect();
    for name in &looked_for {
        let path = folder.join(name);
        match fs::metadata(&path) {
            // Some archives unpack to a folder of the file's name: pass it by.
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(DataError::Open { path, source }),
        }
    }
    Err(DataError::FileMissing { folder: folder.to_path_buf(), what, looked_for })
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
