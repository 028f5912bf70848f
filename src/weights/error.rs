//! What can be wrong with a file of weights.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::Error;

/// Why weights cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}; check that it is there and readable", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    /// The file cannot be written; one that stood there before is untouched.
    #[error(
        "cannot write {}: {source}; name a file in a folder that exists, on a disk with space",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    /// A folder holds no weights, or several files that may be meant.
    #[error("{}: {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },

    /// A file is no safetensors file, or a damaged one.
    #[error(
        "{}: {reason}; expected a whole .safetensors file, so fetch it again or name another",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with its header or length.
        reason: String,
    },

    /// The index of a sharded set is damaged, or does not fit its files.
    #[error("{}: {reason}; fetch the index and its files again", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// A file of names is not as [`NameMap::from_json_file`] takes it.
    ///
    /// [`NameMap::from_json_file`]: super::NameMap::from_json_file
    #[error("{}: {reason}", path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        reason: String,
    },

    /// The file's tensors are not the model's.
    #[error("{} does not fit the model{}", path.display(), Faults(faults))]
    Mismatch {
        /// The file, index or folder.
        path: PathBuf,
        /// All that does not fit: missing, extra, of wrong shape, of wrong
        /// type and doubled ones, each kind sorted by name.
        faults: Vec<Fault>,
    },

    /// A tensor cannot be stored in a file of weights.
    #[error("tensor {name}: {reason}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The trainer or the device failed while it gave or took a tensor.
    #[error(transparent)]
    Plimsoll(#[from] Error),
}

impl WeightsError {
    /// The exit code of the command: 1 for a file that cannot be written, 5 for
    /// one that cannot be used, and those of [`Error::exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            WeightsError::Write { .. } => 1,
            WeightsError::Plimsoll(error) => error.exit_code(),
            _ => 5,
        }
    }
}

/// How one tensor of a file and the model differ. Kinds are in the order in
/// which [`WeightsError::Mismatch`] lists them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The model needs it, the file lacks it.
    Missing {
        /// The model's name.
        name: String,
        /// The shape that the model needs.
        shape: Vec<usize>,
    },
    /// The file has it, the model does not know it.
    Extra {
        /// The file's name.
        name: String,
        /// The shape in the file.
        shape: Vec<usize>,
    },
    /// Both have it in different shapes.
    WrongShape {
        /// The model's name.
        name: String,
        /// The shape that the file should have (before a transposition).
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// Its elements cannot become f32.
    WrongType {
        /// The model's name.
        name: String,
        /// The type in the file.
        found: String,
    },
    /// Two of the file's tensors have the same name in the model.
    Double {
        /// The model's name.
        name: String,
        /// The file's names.
        files: [String; 2],
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing { name, shape } => write!(f, "missing: {name} {shape:?}"),
            Fault::Extra { name, shape } => write!(f, "not in the model: {name} {shape:?}"),
            Fault::WrongShape { name, expected, found } => {
                write!(f, "wrong shape: {name} is {found:?}, expected {expected:?}")
            }
            Fault::WrongType { name, found } => {
                write!(f, "wrong type: {name} is {found}, expected F32, F16, BF16 or F64")
            }
            Fault::Double { name, files: [one, other] } => {
                write!(f, "twice there: {name}, as {one} and as {other}")
            }
        }
    }
}

/// A list for people: the count and one fault a line.
struct Faults<'a>(&'a [Fault]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "fault" } else { "faults" };
        write!(f, " ({} {plural}):", self.0.len())?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}
