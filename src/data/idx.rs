//! The IDX format of MNIST: a header in big-endian order, then the elements.
//!
//! ```text
//! byte 0  00 00        magic
//!      2  08           element type: unsigned byte, the only one read here
//!      3  rank         number of dimensions: 3 for images, 1 for labels
//!      4  u32 × rank   shape, the number of items first
//!      …  elements     row-major, to the end of the file
//! ```
//!
//! A header is a claim. Its sizes are multiplied with overflow checks, and
//! memory grows with the data that is really there, never with the claim.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::error::{DataError, Place};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UNSIGNED_BYTE: u8 = 0x08;
/// Bytes before the shape.
const SHAPE_OFFSET: u64 = 4;

/// An array of unsigned bytes from an IDX file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdxArray {
    /// Length of every dimension, the outermost (items) first; none is 0.
    pub shape: Vec<usize>,
    /// The elements in row-major order; as many as the product of `shape`.
    pub bytes: Vec<u8>,
    file: PathBuf,
    compressed: bool,
}

impl IdxArray {
    /// The file that it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Refuses an array that has not `rank` dimensions.
    pub(crate) fn expect_rank(&self, rank: usize) -> Result<(), DataError> {
        if self.shape.len() == rank {
            return Ok(());
        }
        Err(DataError::WrongRank {
            place: Place::new(&self.file, 3, self.compressed),
            expected: rank,
            found: self.shape.len(),
        })
    }

    /// The place in the file of the shape.
    pub(crate) fn shape_place(&self) -> Place {
        Place::new(&self.file, SHAPE_OFFSET, self.compressed)
    }

    /// The place in the file of element `index` of `bytes`.
    pub(crate) fn element_place(&self, index: usize) -> Place {
        let offset = header_bytes(self.shape.len()) + index as u64;
        Place::new(&self.file, offset, self.compressed)
    }
}

/// Reads the IDX file at `path`, which must have `rank` dimensions.
///
/// Gzip is told by the file's first bytes, not by its name.
///
/// # Errors
///
/// [`DataError::Open`] if the file cannot be opened, and those of [`read_idx`].
pub fn read_idx_file(path: impl AsRef<Path>, rank: usize) -> Result<IdxArray, DataError> {
    let path = path.as_ref();
    let file =
        File::open(path).map_err(|source| DataError::Open { path: path.to_path_buf(), source })?;
    read_idx(file, path, rank)
}

/// Reads an IDX file of `rank` dimensions, raw or gzipped, from `input` to its
/// end; `name` stands for the file in errors.
///
/// # Errors
///
/// [`DataError::Read`], [`DataError::WrongMagic`],
/// [`DataError::UnsupportedType`], [`DataError::WrongRank`],
/// [`DataError::TooLarge`], [`DataError::Empty`], [`DataError::Truncated`] and
/// [`DataError::TrailingBytes`], as the file deserves.
pub fn read_idx(
    mut input: impl Read,
    name: impl AsRef<Path>,
    rank: usize,
) -> Result<IdxArray, DataError> {
    let name = name.as_ref();
    let mut start = Vec::new();
    if let Err(source) = input.by_ref().take(2).read_to_end(&mut start) {
        let place = Place::new(name, start.len() as u64, false);
        return Err(DataError::Read { place, source });
    }
    let compressed = start == GZIP_MAGIC;
    let whole = BufReader::new(io::Cursor::new(start).chain(input));
    if compressed {
        Source::new(MultiGzDecoder::new(whole), name, true).read_array(rank)
    } else {
        Source::new(whole, name, false).read_array(rank)
    }
}

fn header_bytes(rank: usize) -> u64 {
    SHAPE_OFFSET + 4 * rank as u64
}

fn type_name(code: u8) -> &'static str {
    match code {
        0x09 => "signed byte",
        0x0b => "16-bit integer",
        0x0c => "32-bit integer",
        0x0d => "32-bit float",
        0x0e => "64-bit float",
        _ => "no type of the format",
    }
}

/// A stream that knows its name and its offset, for the errors.
struct Source<'a, R> {
    input: R,
    name: &'a Path,
    compressed: bool,
    offset: u64,
}

impl<'a, R: Read> Source<'a, R> {
    fn new(input: R, name: &'a Path, compressed: bool) -> Self {
        Self { input, name, compressed, offset: 0 }
    }

    fn place(&self, offset: u64) -> Place {
        Place::new(self.name, offset, self.compressed)
    }

    fn read_error(&self, source: io::Error) -> DataError {
        DataError::Read { place: self.place(self.offset), source }
    }

    /// Appends up to `limit` bytes to `buffer`, fewer only at the end of the
    /// data or before an error.
    fn read_up_to(&mut self, limit: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let before = buffer.len();
        let result = self.input.by_ref().take(limit).read_to_end(buffer);
        self.offset += (buffer.len() - before) as u64;
        result.map(|_| ())
    }

    /// Reads exactly `count` bytes; `expected` is the size of the whole file as
    /// far as it is known. A gzip stream that is cut off is told as a short
    /// file is.
    fn read_exactly(&mut self, count: u64, expected: u64) -> Result<Vec<u8>, DataError> {
        let mut buffer = Vec::new();
        match self.read_up_to(count, &mut buffer) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(self.read_error(error))
            }
            _ if buffer.len() as u64 == count => Ok(buffer),
            _ => Err(DataError::Truncated {
                place: self.place(self.offset),
                expected,
                found: self.offset,
            }),
        }
    }

    fn read_array(mut self, rank: usize) -> Result<IdxArray, DataError> {
        let shape = self.read_header(rank)?;
        let too_large =
            || DataError::TooLarge { place: self.place(SHAPE_OFFSET), shape: shape.clone() };
        if shape.contains(&0) || shape.is_empty() {
            return Err(DataError::Empty { place: self.place(SHAPE_OFFSET), shape });
        }
        let count = shape
            .iter()
            .try_fold(1u64, |product, &length| product.checked_mul(length.into()))
            .filter(|&count| isize::try_from(count).is_ok())
            .ok_or_else(too_large)?;
        let expected = header_bytes(rank) + count;

        let mut bytes = self.read_exactly(count, expected)?;
        // One byte more tells trailing data, and lets gzip check its sum.
        let mut more = Vec::new();
        self.read_up_to(1, &mut more).map_err(|error| self.read_error(error))?;
        if !more.is_empty() {
            return Err(DataError::TrailingBytes { place: self.place(expected), expected });
        }
        bytes.shrink_to_fit();
        Ok(IdxArray {
            shape: shape.iter().map(|&length| length as usize).collect(),
            bytes,
            file: self.name.to_path_buf(),
            compressed: self.compressed,
        })
    }

    /// Reads the magic, the type, the rank and the shape.
    fn read_header(&mut self, rank: usize) -> Result<Vec<u32>, DataError> {
        let expected = header_bytes(rank);
        let header = self.read_exactly(SHAPE_OFFSET, expected)?;
        if header[..2] != [0, 0] {
            return Err(DataError::WrongMagic {
                place: self.place(0),
                found: [header[0], header[1]],
            });
        }
        if header[2] != UNSIGNED_BYTE {
            return Err(DataError::UnsupportedType {
                place: self.place(2),
                code: header[2],
                name: type_name(header[2]),
            });
        }
        if usize::from(header[3]) != rank {
            return Err(DataError::WrongRank {
                place: self.place(3),
                expected: rank,
                found: header[3].into(),
            });
        }
        let shape = self.read_exactly(expected - SHAPE_OFFSET, expected)?;
        Ok(shape
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }
}

#[cfg(test)]
#[path = "idx_tests.rs"]
mod tests;
