//! What can be wrong with a data set, said so that the reader can mend it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A byte of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or the name of an embedded one.
    pub file: PathBuf,
    /// Bytes from the start of the file, or of its decompressed data where
    /// `compressed` is set.
    pub offset: u64,
    /// Whether the file is gzipped.
    pub compressed: bool,
}

impl Place {
    pub(crate) fn new(file: &Path, offset: u64, compressed: bool) -> Self {
        Self { file: file.to_path_buf(), offset, compressed }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}", self.file.display(), self.offset)?;
        if self.compressed {
            write!(f, " of the decompressed data")?;
        }
        Ok(())
    }
}

/// Why a data set cannot be loaded or cut into batches.
///
/// Every message names the file and the byte where there is one, says what was
/// expected and what to do. Causes of the operating system or of the
/// decompressor are the error's `source`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The folder of the data set does not exist.
    #[error(
        "the data folder {} does not exist; name the folder that holds the IDX files, \
         or use the embedded sample",
        folder.display()
    )]
    FolderMissing {
        /// The folder that was named.
        folder: PathBuf,
    },

    /// The path of the data set is not a folder.
    #[error(
        "{} is not a folder; name the folder that holds the IDX files, not one of them",
        path.display()
    )]
    NotAFolder {
        /// The path that was named.
        path: PathBuf,
    },

    /// The folder lacks one of the four files.
    #[error(
        "no {what} file in {}; looked for {}; put the file there under one of these names",
        folder.display(),
        looked_for.join(", ")
    )]
    FileMissing {
        /// The folder that was searched.
        folder: PathBuf,
        /// What is missing: `training images`, `test labels` and so on.
        what: &'static str,
        /// The file names that would have served.
        looked_for: Vec<String>,
    },

    /// A file cannot be opened.
    #[error("cannot open {}: {source}; check that it is there and readable", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    /// Reading or decompressing failed.
    #[error("cannot read on at {place}: {source}; fetch the file again if it is damaged")]
    Read {
        /// Where reading stopped.
        place: Place,
        /// What the operating system or the decompressor says.
        source: io::Error,
    },

    /// The file does not begin as an IDX file does.
    #[error(
        "{place}: expected the first two bytes of an IDX file, 00 00, found {:02x} {:02x}; \
         is it another kind of file, or a web page saved in its place?",
        found[0],
        found[1]
    )]
    WrongMagic {
        /// The start of the file.
        place: Place,
        /// The first two bytes.
        found: [u8; 2],
    },

    /// The elements are not unsigned bytes.
    #[error(
        "{place}: expected element type 0x08 (unsigned byte), found 0x{code:02x} ({name}); \
         write the file again with unsigned bytes"
    )]
    UnsupportedType {
        /// The byte that holds the type.
        place: Place,
        /// The type as the file gives it.
        code: u8,
        /// The type in words.
        name: &'static str,
    },

    /// The number of dimensions is another than the kind of file needs.
    #[error(
        "{place}: expected {expected} dimension(s), found {found}; images have 3 (items, rows, \
         columns) and labels 1, so look whether image and label files were swapped"
    )]
    WrongRank {
        /// The byte that holds the number of dimensions.
        place: Place,
        /// The dimensions that were needed.
        expected: usize,
        /// The dimensions that the file claims.
        found: usize,
    },

    /// The header claims more bytes than a machine can address.
    #[error(
        "{place}: the header claims a shape of {shape:?}, more bytes than this machine can \
         address; the file is damaged, so fetch it again"
    )]
    TooLarge {
        /// The first byte of the shape.
        place: Place,
        /// The shape that the file claims.
        shape: Vec<u32>,
    },

    /// The header claims no item, or items without elements.
    #[error("{place}: the shape {shape:?} holds no data; expected at least one item")]
    Empty {
        /// The first byte of the shape.
        place: Place,
        /// The shape that the file claims.
        shape: Vec<u32>,
    },

    /// The file ends early.
    #[error(
        "{place}: the file ends here; expected {expected} bytes, got {found}; it was cut short, \
         so fetch it again"
    )]
    Truncated {
        /// Where the data ends.
        place: Place,
        /// Bytes of the whole file, decompressed, as its header claims.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },

    /// There is more data than the header claims.
    #[error(
        "{place}: data goes on past the {expected} bytes that the header claims; the header is \
         wrong or something was appended, so fetch the file again"
    )]
    TrailingBytes {
        /// The first byte too many.
        place: Place,
        /// Bytes of the whole file, decompressed, as its header claims.
        expected: u64,
    },

    /// A label names a class that there is not.
    #[error(
        "{place}: label {value} is out of range, expected 0 to {} for {classes} classes; \
         use the labels that belong to this data set",
        classes.saturating_sub(1)
    )]
    LabelOutOfRange {
        /// The byte that holds the label.
        place: Place,
        /// The label.
        value: u8,
        /// The number of classes.
        classes: usize,
    },

    /// Image and label files do not hold the same number of items.
    #[error(
        "{place}: {images} images, but {labels} labels in {} at byte 4; the two files must come \
         from the same data set",
        labels_file.display()
    )]
    CountMismatch {
        /// The count in the header of the image file.
        place: Place,
        /// The label file.
        labels_file: PathBuf,
        /// Items of the image file.
        images: usize,
        /// Items of the label file.
        labels: usize,
    },

    /// Training and test images do not have the same shape.
    #[error(
        "{place}: test images of shape {test:?}, but training images of shape {train:?}; the \
         files must come from the same data set"
    )]
    ShapeMismatch {
        /// The shape in the header of the test images.
        place: Place,
        /// Shape of one training image.
        train: Vec<usize>,
        /// Shape of one test image.
        test: Vec<usize>,
    },

    /// A file or folder that is not what it should be.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// What was found, what was expected and what to do.
        reason: String,
    },
    /// A data set in memory contradicts itself.
    #[error("the data set contradicts itself: {reason}")]
    Inconsistent {
        /// What does not fit together.
        reason: String,
    },

    /// A data set in memory has no items.
    #[error("the data set has no items; expected at least one")]
    NoItems,

    /// A batch of no items was asked for.
    #[error("a batch of 0 items was asked for; name at least 1")]
    ZeroBatch,

    /// There are too few items for one training batch.
    #[error(
        "the data set has {items} items, fewer than one batch of {batch_items}; choose a batch of \
         at most {items} or a larger data set"
    )]
    SmallerThanBatch {
        /// Items of the data set.
        items: usize,
        /// Items of a batch.
        batch_items: usize,
    },

    /// The thread that prepares batches cannot be started.
    #[error("cannot start the thread that prepares batches: {source}; end other programs")]
    Thread {
        /// What the operating system says.
        source: io::Error,
    },
}
