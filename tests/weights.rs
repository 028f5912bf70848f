//! Saving and loading weights: files written by others, every way in which a
//! file can fail, and a model in training.

#[path = "support/weights.rs"]
mod support;

use std::fs;
use std::path::Path;

use plimsoll::models::Mlp;
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::weights::{
    CHUNK_BYTES, Fault, Loaded, NameMap, Shapes, WeightsError, load, load_model, save, save_model,
    shapes,
};
use plimsoll::{Batch, Error, PlanRequest, Trainer, devices};
use support::{Tensors, faults, fixture, load_all, shape_map, small, values};

fn save_all(path: &Path, shapes: &Shapes, tensors: &Tensors) -> Result<(), WeightsError> {
    save(path, shapes, |name, offset, chunk| {
        let bytes: &[u8] = bytemuck::cast_slice(&tensors[name]);
        chunk.copy_from_slice(&bytes[offset as usize..][..chunk.len()]);
        Ok(())
    })
}

#[test]
fn every_float_type_becomes_f32() {
    let expected: Tensors = [("a", 6), ("b", 5), ("c", 1)]
        .into_iter()
        .enumerate()
        .map(|(k, (name, count))| (name.to_string(), values(k, count)))
        .collect();
    for kind in ["f32", "f16", "bf16", "f64"] {
        let path = fixture(&format!("{kind}.safetensors"));
        let (tensors, loaded) = load_all(&path, &small(), &NameMap::identity()).expect(kind);
        assert_eq!(tensors, expected, "{kind}");
        assert_eq!(loaded, Loaded { tensors: 3, ignored: vec![] });
    }
}

#[test]
fn special_numbers_are_those_of_pytorch() {
    let names = ["f16", "f16.single", "bf16", "bf16.single"];
    let shapes = shape_map(&names.map(|name| (name, &[11][..])));
    let path = fixture("special.safetensors");
    let (tensors, _) = load_all(&path, &shapes, &NameMap::identity()).expect("fits");
    // Every bit, but for NaN, whose bits depend on who converts.
    let bits = |name: &str| {
        let bits = |x: &f32| (!x.is_nan()).then_some(x.to_bits());
        tensors[name].iter().map(bits).collect::<Vec<_>>()
    };
    assert_eq!(bits("f16"), bits("f16.single"));
    assert_eq!(bits("bf16"), bits("bf16.single"));
}

#[test]
fn sharded_sets_load_by_index_and_by_folder() {
    let one = load_all(&fixture("f32.safetensors"), &small(), &NameMap::identity());
    let one = one.expect("loads");
    for name in ["sharded", "sharded/model.safetensors.index.json"] {
        assert_eq!(load_all(&fixture(name), &small(), &NameMap::identity()).expect(name), one);
    }
}

#[test]
fn damaged_indices_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let shard = folder.path().join("x.safetensors");
    fs::copy(fixture("f32.safetensors"), &shard).expect("copies");
    let index = folder.path().join("model.safetensors.index.json");
    for (text, part) in [
        ("{", "EOF"),
        ("{}", "weight_map"),
        (r#"{"weight_map": {"a": 3}}"#, "no name of a file"),
        (r#"{"weight_map": {"a": "../x.safetensors"}}"#, "no name of a file"),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "no name of a file"),
        (r#"{"weight_map": {"d": "x.safetensors"}}"#, "d is not in x.safetensors"),
    ] {
        fs::write(&index, text).expect("writes");
        let error = load_all(&index, &small(), &NameMap::identity()).expect_err(text);
        assert!(matches!(error, WeightsError::Index { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    fs::write(&index, r#"{"weight_map": {"a": "gone.safetensors"}}"#).expect("writes");
    let error = load_all(&index, &small(), &NameMap::identity()).expect_err("it is gone");
    assert!(matches!(error, WeightsError::Open { .. }), "{error:?}");
    let twice = r#"{"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}"#;
    fs::write(&index, twice).expect("writes");
    fs::copy(&shard, folder.path().join("y.safetensors")).expect("copies");
    let error = load_all(&index, &small(), &NameMap::identity()).expect_err("all is there twice");
    assert!(matches!(error, WeightsError::Format { .. }), "{error:?}");
}

#[test]
fn folders_must_be_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = || load_all(folder.path(), &small(), &NameMap::identity());
    assert!(matches!(load().expect_err("empty"), WeightsError::Folder { .. }));
    let source = fixture("f32.safetensors");
    fs::copy(&source, folder.path().join("b.safetensors")).expect("copies");
    load().expect("the only file");
    fs::copy(&source, folder.path().join("a.safetensors")).expect("copies");
    let text = load().expect_err("which?").to_string();
    assert!(text.contains("a.safetensors, b.safetensors"), "{text}");
    fs::copy(&source, folder.path().join("model.safetensors")).expect("copies");
    load().expect("the usual name");
}

#[test]
fn all_faults_come_in_one_error() {
    let shapes = shape_map(&[("a", &[3, 2]), ("c", &[]), ("d", &[4]), ("A", &[1])]);
    let mut calls = 0;
    let path = fixture("f32.safetensors");
    let error = load(&path, &shapes, &NameMap::identity(), |_, _, _| {
        calls += 1;
        Ok(())
    })
    .expect_err("it does not fit");
    assert_eq!(calls, 0, "nothing is handed over where something does not fit");
    let text = error.to_string();
    assert!(text.contains("(4 faults)") && text.contains("wrong shape: a is [2, 3]"), "{text}");
    let name = |name: &str| name.to_string();
    assert_eq!(
        faults(error),
        [
            Fault::Missing { name: name("A"), shape: vec![1] },
            Fault::Missing { name: name("d"), shape: vec![4] },
            Fault::Extra { name: name("b"), shape: vec![5] },
            Fault::WrongShape { name: name("a"), expected: vec![3, 2], found: vec![2, 3] },
        ]
    );
    let shapes = shape_map(&[("a", &[2, 3]), ("b", &[5])]);
    let integer = fixture("integer.safetensors");
    let error = load_all(&integer, &shapes, &NameMap::identity()).expect_err("integers");
    assert_eq!(faults(error), [Fault::WrongType { name: name("a"), found: name("I64") }]);
}

#[test]
fn cut_and_garbled_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    let whole = fs::read(fixture("f32.safetensors")).expect("reads");
    let try_load = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("writes");
        load_all(&path, &small(), &NameMap::identity())
    };
    for length in 0..whole.len() {
        let error = try_load(&whole[..length]).expect_err("it is cut");
        assert!(matches!(error, WeightsError::Format { .. }), "{length}: {error:?}");
        assert!(error.to_string().contains("x.safetensors"), "{error}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(matches!(try_load(&longer), Err(WeightsError::Format { .. })));
    // Every byte of the header turned: an error, or the same tensors (a space,
    // say), but no panic.
    let header = 8 + usize::from(whole[0]);
    let expected = try_load(&whole).expect("is whole").0;
    for index in 0..header {
        for flip in [1, 0x20, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[index] ^= flip;
            match try_load(&bytes) {
                Ok((tensors, _)) => assert_eq!(tensors.len(), expected.len()),
                Err(WeightsError::Format { .. } | WeightsError::Mismatch { .. }) => {}
                Err(other) => panic!("byte {index}: {other:?}"),
            }
        }
    }
    for garbage in [&b"<!DOCTYPE html><html></html>"[..], &[0xff; 64], &[0; 64]] {
        assert!(matches!(try_load(garbage), Err(WeightsError::Format { .. })));
    }
    let gone = load_all(&folder.path().join("none"), &small(), &NameMap::identity());
    assert!(matches!(gone, Err(WeightsError::Open { .. })));
}

#[test]
fn round_trips_keep_every_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    // More than a chunk, a scalar, a name that JSON must escape, special bits.
    let large = CHUNK_BYTES / 4 + 12_345;
    let shapes = shape_map(&[("large", &[large]), ("scalar", &[]), ("quo\"te/ü", &[2, 2])]);
    let bits = [0x7fc0_1234, 0x8000_0000, 1, 0xff80_0000].map(f32::from_bits);
    let tensors = Tensors::from([
        (
            "large".into(),
            (0..large as u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect(),
        ),
        ("scalar".into(), vec![3.5]),
        ("quo\"te/ü".into(), bits.to_vec()),
    ]);
    save_all(&path, &shapes, &tensors).expect("saves");
    let (back, _) = load_all(&path, &shapes, &NameMap::identity()).expect("loads");
    for (name, floats) in &tensors {
        let same = floats.iter().zip(&back[name]).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && floats.len() == back[name].len(), "{name}");
    }
    // Others can read it, and it is sorted and marked.
    let bytes = fs::read(&path).expect("reads");
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).expect("has a header");
    assert_eq!(metadata.offset_keys(), ["large", "quo\"te/ü", "scalar"]);
    let notes = metadata.metadata().as_ref().expect("has metadata");
    assert_eq!(notes["format"], "plimsoll");
    let again = folder.path().join("again.safetensors");
    save_all(&again, &shapes, &tensors).expect("saves");
    assert_eq!(fs::read(again).expect("reads"), bytes, "the same model gives the same file");
}

#[test]
fn an_interrupted_save_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    let tensors = Tensors::from([
        ("a".into(), values(0, 6)),
        ("b".into(), values(1, 5)),
        ("c".into(), values(2, 1)),
    ]);
    save_all(&path, &small(), &tensors).expect("saves");
    let before = fs::read(&path).expect("reads");
    let error = save(&path, &small(), |name, _, chunk| match name {
        "b" => Err(Error::device("test", "lost")),
        _ => {
            chunk.fill(1);
            Ok(())
        }
    })
    .expect_err("the device is lost");
    assert_eq!(error.exit_code(), 4);
    assert_eq!(fs::read(&path).expect("reads"), before);
    let names: Vec<_> = fs::read_dir(folder.path()).expect("lists").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    // Neither a folder that is not there nor one in the file's place panics.
    for target in [folder.path().join("none/x"), folder.path().to_path_buf(), "/".into()] {
        let error = save_all(&target, &small(), &tensors).expect_err("cannot be written");
        assert!(matches!(error, WeightsError::Write { .. }), "{error:?}");
        assert_eq!(error.exit_code(), 1);
    }
    let impossible = shape_map(&[("a", &[usize::MAX, 2])]);
    let error = save_all(&path, &impossible, &tensors).expect_err("too large");
    assert!(matches!(error, WeightsError::Tensor { .. }), "{error:?}");
}

#[test]
fn a_model_in_training_comes_back() {
    let model = Mlp::new(&[6, 5, 3]).expect("valid");
    let device = devices::open("cpu").expect("always there");
    let trainer = |adam: bool, seed: u64| -> Trainer {
        let recipe: Recipe = if adam { Adam::adamw().into() } else { Sgd::default().into() };
        let request = PlanRequest::new(&model, &recipe, 2, u64::MAX);
        Trainer::new(&request, &*device, seed).expect("plans")
    };
    let mut first = trainer(true, 1);
    let labels: [i32; 2] = [0, 2];
    let images = [7u8, 1, 200, 3, 90, 5, 6, 77, 8, 9, 10, 250];
    let batch = Batch::from([("images", &images[..]), ("labels", bytemuck::cast_slice(&labels))]);
    first.train_step(&batch, 0.01).expect("steps");
    let names = ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"];
    let kept = shapes(first.plan()).expect("all are f32");
    assert!(kept.keys().eq(names), "no moments, no sums: {kept:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    save_model(&mut first, &path).expect("saves");
    // Another optimizer has other state, but the same model.
    let mut second = trainer(false, 2);
    let loaded = load_model(&mut second, &path, &NameMap::identity()).expect("fits");
    assert_eq!(loaded.tensors, 4);
    for name in names {
        assert_eq!(first.read(name).expect("is there"), second.read(name).expect("is there"));
    }
}
