//! Tests of the IDX reader: every way in which a file can be wrong.

use super::super::idx_fixture::{gzip, idx_bytes};
use super::*;

fn read(bytes: &[u8], rank: usize) -> Result<IdxArray, DataError> {
    read_idx(bytes, "some/file", rank)
}

/// The error of reading `bytes`, and the same of `bytes` gzipped.
fn both_errors(bytes: &[u8], rank: usize) -> [DataError; 2] {
    [read(bytes, rank).unwrap_err(), read(&gzip(bytes), rank).unwrap_err()]
}

#[track_caller]
fn assert_says(error: &DataError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn reads_raw_and_gzipped_data_alike() {
    let bytes = idx_bytes(&[2, 3, 1], &[1, 2, 3, 4, 5, 6]);
    let raw = read(&bytes, 3).unwrap();
    let packed = read(&gzip(&bytes), 3).unwrap();
    assert_eq!(raw.shape, [2, 3, 1]);
    assert_eq!(raw.bytes, [1, 2, 3, 4, 5, 6]);
    assert_eq!((&packed.shape, &packed.bytes), (&raw.shape, &raw.bytes));
    assert_eq!(raw.element_place(5).to_string(), "some/file, byte 21");
    assert_eq!(packed.element_place(0).to_string(), "some/file, byte 16 of the decompressed data");
}

#[test]
fn gzip_members_are_joined() {
    let bytes = idx_bytes(&[4], &[1, 2, 3, 4]);
    let mut packed = gzip(&bytes[..9]);
    packed.extend(gzip(&bytes[9..]));
    assert_eq!(read(&packed, 1).unwrap().bytes, [1, 2, 3, 4]);
}

#[test]
fn gzip_is_told_by_content_not_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.gz");
    std::fs::write(&path, idx_bytes(&[1], &[7])).unwrap();
    assert_eq!(read_idx_file(&path, 1).unwrap().bytes, [7]);
    let path = folder.path().join("labels");
    std::fs::write(&path, gzip(&idx_bytes(&[1], &[7]))).unwrap();
    assert_eq!(read_idx_file(&path, 1).unwrap().bytes, [7]);
}

#[test]
fn missing_file_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let error = read_idx_file(folder.path().join("none"), 1).unwrap_err();
    assert!(matches!(&error, DataError::Open { source, .. }
        if source.kind() == io::ErrorKind::NotFound));
    assert_says(&error, &["cannot open", "none"]);
}

#[test]
fn wrong_magic_shows_what_was_found() {
    for error in both_errors(b"<!DOCTYPE html>", 3) {
        assert!(matches!(&error, DataError::WrongMagic { found: [b'<', b'!'], .. }));
        assert_says(&error, &["some/file, byte 0", "00 00", "3c 21"]);
    }
}

#[test]
fn other_element_types_are_unsupported() {
    for (code, name) in [
        (0x09, "signed byte"),
        (0x0b, "16-bit integer"),
        (0x0c, "32-bit integer"),
        (0x0d, "32-bit float"),
        (0x0e, "64-bit float"),
        (0x42, "no type"),
    ] {
        for error in both_errors(&[0, 0, code, 1, 0, 0, 0, 1, 0, 0, 0, 0], 1) {
            assert!(matches!(&error, DataError::UnsupportedType { code: c, .. } if *c == code));
            assert_says(&error, &["some/file, byte 2", name, "0x08"]);
        }
    }
}

#[test]
fn wrong_rank_hints_at_swapped_files() {
    for error in both_errors(&idx_bytes(&[1], &[0]), 3) {
        let DataError::WrongRank { expected: 3, found: 1, .. } = &error else {
            panic!("{error:?}");
        };
        assert_says(&error, &["byte 3", "expected 3", "found 1", "swapped"]);
    }
}

#[test]
fn every_cut_is_told_as_truncation() {
    let bytes = idx_bytes(&[2, 2, 2], &[9; 8]);
    for length in 0..bytes.len() {
        let [raw, packed] = both_errors(&bytes[..length], 3);
        for error in [&raw, &packed] {
            let DataError::Truncated { place, expected, found } = error else {
                panic!("{length} bytes: {error:?}");
            };
            assert_eq!(place.offset, length as u64);
            assert_eq!(*found, length as u64);
            assert_eq!(*expected, if length < 16 { 16 } else { 24 });
        }
    }
    assert_says(
        &read(&bytes[..20], 3).unwrap_err(),
        &["some/file, byte 20", "expected 24 bytes, got 20", "fetch it again"],
    );
}

#[test]
fn every_cut_of_a_gzip_stream_is_an_error_that_names_the_file() {
    let packed = gzip(&idx_bytes(&[64], &[5; 64]));
    for length in 0..packed.len() {
        let error = read(&packed[..length], 1).unwrap_err();
        assert!(
            matches!(error, DataError::Truncated { .. } | DataError::Read { .. }),
            "{length} bytes: {error:?}"
        );
        assert_says(&error, &["some/file"]);
    }
}

#[test]
fn every_flipped_byte_of_a_gzip_stream_is_an_error_or_harmless() {
    let bytes = idx_bytes(&[64], &std::array::from_fn::<u8, 64, _>(|i| (i * 37 % 256) as u8));
    let packed = gzip(&bytes);
    for index in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[index] ^= 0x10;
        match read(&damaged, 1) {
            Ok(array) => assert_eq!(array.bytes, bytes[8..], "byte {index}"),
            Err(error) => assert_says(&error, &["some/file"]),
        }
    }
}

#[test]
fn wrong_gzip_sum_is_a_read_error() {
    let mut packed = gzip(&idx_bytes(&[3], &[1, 2, 3]));
    let sum = packed.len() - 8;
    packed[sum] ^= 1;
    let error = read(&packed, 1).unwrap_err();
    assert!(matches!(&error, DataError::Read { place, .. } if place.offset == 11));
    assert_says(&error, &["some/file, byte 11 of the decompressed data"]);
}

#[test]
fn trailing_bytes_are_an_error() {
    let mut bytes = idx_bytes(&[3], &[1, 2, 3]);
    bytes.push(0);
    for error in both_errors(&bytes, 1) {
        assert!(matches!(error, DataError::TrailingBytes { expected: 11, .. }));
        assert_says(&error, &["some/file, byte 11", "11 bytes"]);
    }
    let mut packed = gzip(&bytes[..11]);
    packed.extend(b"garbage");
    assert!(matches!(read(&packed, 1).unwrap_err(), DataError::Read { .. }));
}

#[test]
fn shape_without_data_is_empty() {
    for shape in [[0, 28, 28], [5, 0, 28]] {
        for error in both_errors(&idx_bytes(&shape, &[]), 3) {
            assert!(matches!(&error, DataError::Empty { shape: s, .. } if *s == shape));
            assert_says(&error, &["some/file, byte 4", "at least one item"]);
        }
    }
}

#[test]
fn lying_header_allocates_nothing() {
    // 2^62 bytes fit the address space of a 64-bit machine, but are not there.
    let error = read(&idx_bytes(&[1 << 31, 1 << 30, 2], &[1, 2, 3]), 3).unwrap_err();
    if cfg!(target_pointer_width = "64") {
        assert!(matches!(error, DataError::Truncated { found: 19, .. }), "{error:?}");
    }
    for error in both_errors(&idx_bytes(&[u32::MAX; 3], &[1, 2, 3]), 3) {
        assert!(matches!(error, DataError::TooLarge { .. }), "{error:?}");
        assert_says(&error, &["some/file, byte 4", "4294967295"]);
    }
}

#[test]
fn failing_reader_is_named() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let error = read_idx(Failing, "some/file", 1).unwrap_err();
    assert_says(&error, &["some/file, byte 0", "the disk is gone"]);
    let error = read_idx([0u8, 0, 8].as_slice().chain(Failing), "some/file", 1).unwrap_err();
    assert_says(&error, &["some/file, byte 3", "the disk is gone"]);
}
