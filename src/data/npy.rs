//! Arrays in NumPy's format, mapped into memory and read element by element.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use npyz::{DType, NpyHeader, Order, TypeChar};

use super::error::DataError;
use crate::mapped::Bytes;

/// Types of elements that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    I64,
    F32,
    F64,
}

/// An array of a file, mapped into memory.
#[derive(Debug)]
pub struct NpyArray {
    /// The file.
    pub path: PathBuf,
    /// Its shape; row-major.
    pub shape: Vec<usize>,
    bytes: Bytes,
    offset: usize,
    element: Element,
}

impl NpyArray {
    /// Maps a file of version 1 to 3: integers or floats, little-endian, in C
    /// order.
    ///
    /// # Errors
    /// [`DataError::Open`], and [`DataError::Unusable`] for other files.
    pub fn open(path: impl AsRef<Path>) -> Result<NpyArray, DataError> {
        let path = path.as_ref().to_path_buf();
        let bytes =
            Bytes::map(&path).map_err(|source| DataError::Open { path: path.clone(), source })?;
        let fail = |reason: String| DataError::Unusable { path: path.clone(), reason };
        let mut cursor = Cursor::new(&bytes[..]);
        let header = NpyHeader::from_reader(&mut cursor)
            .map_err(|e| fail(format!("{e}; expected an array as numpy.save writes it")))?;
        let offset = cursor.position() as usize;
        let element = element(&header.dtype()).ok_or_else(|| {
            fail(format!(
                "elements of type {}; expected integers of 8 to 64 bits or floats of 32 or 64, \
                 little-endian",
                header.dtype().descr()
            ))
        })?;
        let shape: Vec<usize> = header.shape().iter().map(|s| *s as usize).collect();
        if header.order() != Order::C && shape.len() > 1 {
            return Err(fail("is in Fortran's order; save numpy.ascontiguousarray of it".into()));
        }
        let count = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
        let expected = count.and_then(|c| c.checked_mul(element.bytes())?.checked_add(offset));
        if expected != Some(bytes.len()) {
            return Err(fail(format!(
                "{} bytes do not hold the shape {shape:?} that the header claims; save it again",
                bytes.len()
            )));
        }
        if count == Some(0) {
            return Err(fail(format!("the shape {shape:?} holds no data")));
        }
        Ok(NpyArray { path, shape, bytes, offset, element })
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    fn raw<const N: usize>(&self, index: usize) -> [u8; N] {
        let at = self.offset + index * N;
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[at..at + N]);
        out
    }

    /// Element `index` in row-major order as a float.
    pub fn float(&self, index: usize) -> f32 {
        match self.element {
            Element::F32 => f32::from_le_bytes(self.raw(index)),
            Element::F64 => f64::from_le_bytes(self.raw(index)) as f32,
            _ => self.integer(index) as f32,
        }
    }

    /// Element `index` in row-major order as an integer; a fraction is cut off.
    pub fn integer(&self, index: usize) -> i64 {
        match self.element {
            Element::U8 => self.raw::<1>(index)[0].into(),
            Element::I8 => (self.raw::<1>(index)[0] as i8).into(),
            Element::U16 => u16::from_le_bytes(self.raw(index)).into(),
            Element::I16 => i16::from_le_bytes(self.raw(index)).into(),
            Element::U32 => u32::from_le_bytes(self.raw(index)).into(),
            Element::I32 => i32::from_le_bytes(self.raw(index)).into(),
            Element::I64 => i64::from_le_bytes(self.raw(index)),
            Element::F32 => f32::from_le_bytes(self.raw(index)) as i64,
            Element::F64 => f64::from_le_bytes(self.raw(index)) as i64,
        }
    }

    /// Whether elements are integers.
    pub fn is_integer(&self) -> bool {
        !matches!(self.element, Element::F32 | Element::F64)
    }

    /// Checks that all elements are integers from 0 to below `end`.
    ///
    /// # Errors
    /// [`DataError::Unusable`] that names the first other one.
    pub fn expect_below(&self, end: usize, what: &str) -> Result<(), DataError> {
        let fail = |reason: String| Err(DataError::Unusable { path: self.path.clone(), reason });
        if !self.is_integer() {
            return fail(format!("{what} are floats, expected integers"));
        }
        let wrong = |i: &usize| usize::try_from(self.integer(*i)).map_or(true, |x| x >= end);
        match (0..self.count()).find(wrong) {
            None => Ok(()),
            Some(i) => fail(format!(
                "element {i} is {}, expected {what} from 0 to {}",
                self.integer(i),
                end.saturating_sub(1)
            )),
        }
    }
}

impl Element {
    fn bytes(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::I64 | Element::F64 => 8,
        }
    }
}

fn element(dtype: &DType) -> Option<Element> {
    let DType::Plain(ty) = dtype else { return None };
    if ty.size_field() > 1 && ty.endianness() == npyz::Endianness::Big {
        return None;
    }
    Some(match (ty.type_char(), ty.size_field()) {
        (TypeChar::Uint | TypeChar::Bool, 1) => Element::U8,
        (TypeChar::Int, 1) => Element::I8,
        (TypeChar::Uint, 2) => Element::U16,
        (TypeChar::Int, 2) => Element::I16,
        (TypeChar::Uint, 4) => Element::U32,
        (TypeChar::Int, 4) => Element::I32,
        (TypeChar::Int, 8) => Element::I64,
        (TypeChar::Float, 4) => Element::F32,
        (TypeChar::Float, 8) => Element::F64,
        _ => return None,
    })
}
