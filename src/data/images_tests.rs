//! Tests of the data sets.

use super::super::idx_fixture::{gzip, idx_bytes, write_small_set};
use super::*;

fn small_set() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_small_set(folder.path());
    folder
}

#[test]
fn loads_a_folder() {
    let folder = small_set();
    let data = load_folder(folder.path()).unwrap();
    assert_eq!((data.train.items(), data.test.items()), (6, 2));
    assert_eq!(data.train.item_shape, [2, 3]);
    assert_eq!(data.train.item_bytes(), 6);
    assert_eq!(data.train.classes, 10);
    assert_eq!(data.train.labels, [0, 1, 2, 3, 4, 5]);
    assert_eq!(data.train.images[6..12], [10, 11, 12, 13, 14, 15]);
    assert_eq!(data.source, folder.path().display().to_string());
    data.train.check().unwrap();
}

#[test]
fn loads_dotted_and_gzipped_names_and_passes_folders_by() {
    let expected = load_folder(small_set().path()).unwrap();
    let folder = small_set();
    let at = |name: &str| folder.path().join(name);
    fs::rename(at("train-images-idx3-ubyte"), at("train-images.idx3-ubyte")).unwrap();
    fs::create_dir(at("train-images-idx3-ubyte")).unwrap();
    let labels = fs::read(at("train-labels-idx1-ubyte")).unwrap();
    fs::remove_file(at("train-labels-idx1-ubyte")).unwrap();
    fs::write(at("train-labels-idx1-ubyte.gz"), gzip(&labels)).unwrap();
    let images = fs::read(at("t10k-images-idx3-ubyte")).unwrap();
    fs::remove_file(at("t10k-images-idx3-ubyte")).unwrap();
    fs::write(at("t10k-images.idx3-ubyte.gz"), gzip(&images)).unwrap();
    let data = load_folder(folder.path()).unwrap();
    assert_eq!((data.train, data.test), (expected.train, expected.test));
}

#[test]
fn embedded_sample_is_balanced() {
    let data = embedded_sample().unwrap();
    assert!(data.source.contains("Fashion-MNIST"));
    for (part, items) in [(&data.train, 1000), (&data.test, 250)] {
        part.check().unwrap();
        assert_eq!(part.items(), items);
        assert_eq!(part.item_shape, [28, 28]);
        for class in 0..10 {
            let of_class = part.labels.iter().filter(|&&label| label == class);
            assert_eq!(of_class.count(), items / 10);
        }
    }
    // The full training set begins with an ankle boot, a T-shirt, a T-shirt, a dress.
    assert_eq!(data.train.labels[..4], [9, 0, 0, 3]);
}

#[test]
fn loads_the_full_data_set_where_debian_installs_it() {
    let folder = Path::new("/usr/share/datasets/fashion-mnist");
    if !folder.is_dir() {
        eprintln!("not covered: Debian's package dataset-fashion-mnist is not installed");
        return;
    }
    let full = load_folder(folder).unwrap();
    assert_eq!((full.train.items(), full.test.items()), (60_000, 10_000));
    assert_eq!(full.train.item_shape, [28, 28]);
    let sample = embedded_sample().unwrap();
    let images = |data: &ImageDataset| -> Vec<Vec<u8>> {
        let images = data.images.chunks_exact(data.item_bytes());
        images.map(<[u8]>::to_vec).collect()
    };
    // The sample is a subsequence of the full set.
    let mut rest = images(&full.train).into_iter().zip(full.train.labels);
    for item in images(&sample.train).into_iter().zip(sample.train.labels) {
        assert!(rest.any(|candidate| candidate == item));
    }
}

#[test]
fn missing_folder() {
    let folder = tempfile::tempdir().unwrap();
    let error = load_folder(folder.path().join("none")).unwrap_err();
    assert!(matches!(&error, DataError::FolderMissing { folder } if folder.ends_with("none")));
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn file_instead_of_folder() {
    let folder = small_set();
    let error = load_folder(folder.path().join("t10k-labels-idx1-ubyte")).unwrap_err();
    assert!(matches!(&error, DataError::NotAFolder { .. }), "{error:?}");
}

#[test]
fn each_missing_file_is_named_with_what_would_serve() {
    for (stem, kind) in [
        ("train-images", "idx3"),
        ("train-labels", "idx1"),
        ("t10k-images", "idx3"),
        ("t10k-labels", "idx1"),
    ] {
        let folder = small_set();
        fs::remove_file(folder.path().join(format!("{stem}-{kind}-ubyte"))).unwrap();
        let error = load_folder(folder.path()).unwrap_err();
        let DataError::FileMissing { looked_for, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(looked_for.len(), 4);
        for separator in ["-", "."] {
            for end in ["", ".gz"] {
                let name = format!("{stem}{separator}{kind}-ubyte{end}");
                assert!(looked_for.contains(&name));
                assert!(error.to_string().contains(&name));
            }
        }
    }
}

#[test]
fn label_out_of_range_is_placed() {
    let folder = small_set();
    let path = folder.path().join("train-labels-idx1-ubyte");
    fs::write(&path, idx_bytes(&[6], &[0, 1, 2, 10, 4, 11])).unwrap();
    let error = load_folder(folder.path()).unwrap_err();
    let DataError::LabelOutOfRange { place, value: 10, classes: 10 } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((place.offset, &place.file), (8 + 3, &path));
    assert!(error.to_string().contains("expected 0 to 9"), "{error}");
}

#[test]
fn mismatched_counts() {
    let folder = small_set();
    let path = folder.path().join("train-labels-idx1-ubyte");
    fs::write(&path, idx_bytes(&[5], &[0; 5])).unwrap();
    let error = load_folder(folder.path()).unwrap_err();
    assert!(matches!(error, DataError::CountMismatch { images: 6, labels: 5, .. }), "{error:?}");
    for part in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "byte 4"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn mismatched_shapes() {
    let folder = small_set();
    let path = folder.path().join("t10k-images-idx3-ubyte");
    fs::write(path, idx_bytes(&[2, 3, 2], &[0; 12])).unwrap();
    let error = load_folder(folder.path()).unwrap_err();
    assert!(error.to_string().contains("[3, 2]"), "{error}");
    assert!(matches!(error, DataError::ShapeMismatch { .. }));
}

#[test]
fn arrays_of_other_ranks_do_not_join() {
    let read =
        |shape: &[u32]| read_idx(idx_bytes(shape, &[0]).as_slice(), "some", shape.len()).unwrap();
    for (images, labels) in [(read(&[1]), read(&[1])), (read(&[1, 1, 1]), read(&[1, 1]))] {
        let error = ImageDataset::from_idx(images, &labels, 10).unwrap_err();
        assert!(matches!(error, DataError::WrongRank { .. }), "{error:?}");
    }
}

#[test]
fn check_finds_what_does_not_fit() {
    let good = load_folder(small_set().path()).unwrap().train;
    let reasons = [
        ImageDataset { labels: vec![0; 5], ..good.clone() },
        ImageDataset { item_shape: vec![usize::MAX, 2], ..good.clone() },
        ImageDataset { classes: 5, ..good.clone() },
        ImageDataset { labels: vec![-1; 6], ..good },
    ]
    .map(|data| data.check().unwrap_err().to_string());
    assert!(reasons[0].contains("36 bytes"), "{reasons:?}");
    assert!(reasons[1].contains("36 bytes"), "{reasons:?}");
    assert!(reasons[2].contains("label 5 of item 5"), "{reasons:?}");
    assert!(reasons[3].contains("label -1 of item 0"), "{reasons:?}");
}
