//! Files that are whole or not there: written beside their place, then renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file in the making. Dropped without [`commit`](Self::commit), it vanishes
/// and leaves what stood in its place.
pub(crate) struct AtomicFile {
    target: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Begins a file that is to stand at `target`.
    pub(crate) fn create(target: &Path) -> io::Result<AtomicFile> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
        let mut name = target.file_name().ok_or_else(invalid)?.to_owned();
        if target.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        // Neither another process nor another thread may share it.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}-{count}.partial", std::process::id()));
        let partial = target.with_file_name(name);
        let file = Some(BufWriter::with_capacity(1 << 20, File::create(&partial)?));
        Ok(AtomicFile { target: target.to_path_buf(), partial, file })
    }

    /// Puts the file in its place, once its bytes are safe on the disk.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        let Some(writer) = self.file.take() else { return Ok(()) };
        let written = writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.partial, &self.target));
        if let Err(error) = written {
            // The first error is the one that matters.
            let _ = fs::remove_file(&self.partial);
            return Err(error);
        }
        // The rename too should outlast a loss of power; where folders cannot
        // be synchronised, the file is whole either way.
        let folder = self.target.parent().filter(|p| !p.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(writer) = self.file.take() {
            // What is buffered need not reach the disk any more.
            drop(writer.into_parts());
            let _ = fs::remove_file(&self.partial);
        }
    }
}
