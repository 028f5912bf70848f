//! Files mapped into memory: the one place of the root package that is not
//! safe Rust.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Bytes that need no copy: of a mapped file or of the program.
pub(crate) enum Bytes {
    /// A file's.
    Mapped(Mmap),
    /// The program's own.
    Static(&'static [u8]),
}

impl Bytes {
    /// Maps a file, read only.
    pub(crate) fn map(path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
        }
        // Some systems refuse a map of no bytes.
        if metadata.len() == 0 {
            return Ok(Bytes::Static(&[]));
        }
        // SAFETY: the map is private and read only, and every bit pattern is a
        // valid byte. What remains is that another program may write to the
        // file or cut it while it is mapped, as with any mapped file: then the
        // bytes read are those of either version, which no caller takes for
        // trusted (lengths and offsets are checked against the map's length,
        // which is fixed), or the system ends the process. Plimsoll itself
        // never writes into a file in place: it writes another and renames it,
        // which leaves the mapped one as it was.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Bytes::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
