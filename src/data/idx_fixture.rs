//! IDX files for the tests of this module.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// An IDX file of unsigned bytes with the header's `shape` and `elements`,
/// whether they fit or not.
pub(crate) fn idx_bytes(shape: &[u32], elements: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0x08, u8::try_from(shape.len()).unwrap()];
    for length in shape {
        bytes.extend(length.to_be_bytes());
    }
    bytes.extend(elements);
    bytes
}

/// `bytes`, gzipped.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes the four files of a small data set of 2×3 images: 6 training and 2
/// test items; element `e` of image `i` is `10 i + e`, its label `i`.
pub(crate) fn write_small_set(folder: &Path) {
    for (part, items) in [("train", 6u8), ("t10k", 2)] {
        let images: Vec<u8> =
            (0..items).flat_map(|item| (0..6).map(move |element| 10 * item + element)).collect();
        let labels: Vec<u8> = (0..items).collect();
        std::fs::write(
            folder.join(format!("{part}-images-idx3-ubyte")),
            idx_bytes(&[items.into(), 2, 3], &images),
        )
        .unwrap();
        std::fs::write(
            folder.join(format!("{part}-labels-idx1-ubyte")),
            idx_bytes(&[items.into()], &labels),
        )
        .unwrap();
    }
}
