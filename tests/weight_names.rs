//! From the names in files that others publish to those of our models.

#[path = "support/weights.rs"]
mod support;

use std::fs;

use plimsoll::weights::{Fault, NameMap};
use support::{faults, fixture, load_all, shape_map, small, value, values};

#[test]
fn gpt2_turns_its_matrices() {
    let width = 4;
    let mut shapes = shape_map(&[
        ("wte.weight", &[6, 4]),
        ("wpe.weight", &[3, 4]),
        ("ln_f.weight", &[4]),
        ("ln_f.bias", &[4]),
    ]);
    let matrices =
        [("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)];
    for layer in 0..2 {
        for part in ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"] {
            shapes.insert(format!("h.{layer}.{part}"), vec![width]);
        }
        for (name, inputs, outputs) in matrices {
            shapes
                .insert(format!("h.{layer}.{name}.weight"), vec![outputs * width, inputs * width]);
            shapes.insert(format!("h.{layer}.{name}.bias"), vec![outputs * width]);
        }
    }
    let map = NameMap::hugging_face_gpt2();
    let (tensors, loaded) = load_all(&fixture("gpt2.safetensors"), &shapes, &map).expect("fits");
    assert_eq!(loaded.tensors, 4 + 2 * 12);
    assert_eq!(loaded.ignored.len(), 5, "{:?}", loaded.ignored);
    for (k, (name, shape)) in shapes.iter().enumerate() {
        let count = shape.iter().product();
        let expected = match matrices.iter().any(|(m, ..)| name.ends_with(&format!("{m}.weight"))) {
            // Ours [out, in] at (o, i) is the file's [in, out] at (i, o).
            true => {
                (0..count).map(|at| value(k, at % shape[1] * shape[0] + at / shape[1])).collect()
            }
            false => values(k, count),
        };
        assert_eq!(tensors[name], expected, "{name}");
    }
    // An output layer of its own is loaded where the model has one.
    shapes.insert("lm_head.weight".into(), vec![6, 4]);
    let (tensors, _) = load_all(&fixture("gpt2.safetensors"), &shapes, &map).expect("fits");
    assert_eq!(tensors["lm_head.weight"], tensors["wte.weight"]);
}

#[test]
fn bert_and_resnet_lose_what_the_model_has_not() {
    let mut shapes = shape_map(&[
        ("embeddings.LayerNorm.bias", &[4]),
        ("embeddings.LayerNorm.weight", &[4]),
        ("embeddings.word_embeddings.weight", &[6, 4]),
        ("encoder.layer.0.attention.self.query.weight", &[4, 4]),
    ]);
    let (path, map) = (fixture("bert.safetensors"), NameMap::hugging_face_bert());
    let (tensors, loaded) = load_all(&path, &shapes, &map).expect("fits");
    assert_eq!(tensors["embeddings.LayerNorm.bias"], values(0, 4));
    assert_eq!(tensors["embeddings.LayerNorm.weight"], values(1, 4));
    assert_eq!(
        loaded.ignored,
        [
            "bert.embeddings.position_ids",
            "bert.pooler.dense.weight",
            "cls.predictions.bias",
            "cls.predictions.transform.LayerNorm.gamma"
        ]
    );
    // A model with the heads gets them.
    shapes.insert("cls.predictions.transform.LayerNorm.weight".into(), vec![4]);
    shapes.insert("pooler.dense.weight".into(), vec![4, 4]);
    let (tensors, _) = load_all(&path, &shapes, &map).expect("fits");
    assert_eq!(tensors["cls.predictions.transform.LayerNorm.weight"], [2.0; 4]);
    let shapes = shape_map(&[
        ("bn1.running_mean", &[2]),
        ("bn1.weight", &[2]),
        ("conv1.weight", &[2, 3, 3, 3]),
    ]);
    let path = fixture("resnet.safetensors");
    let (tensors, loaded) = load_all(&path, &shapes, &NameMap::torchvision()).expect("fits");
    assert_eq!(tensors["conv1.weight"], values(2, 54));
    assert_eq!(loaded.ignored, ["bn1.num_batches_tracked"]);
}

#[test]
fn names_come_from_a_json_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("names.json");
    let map = |text: &str| {
        fs::write(&json, text).expect("writes");
        NameMap::from_json_file(&json)
    };
    let names = map(r#"{"a": {"name": "fc.weight", "transpose": true}, "*": "rest.*", "c": null}"#);
    let shapes = shape_map(&[("fc.weight", &[3, 2]), ("rest.b", &[5])]);
    let path = fixture("f32.safetensors");
    let (tensors, loaded) = load_all(&path, &shapes, &names.expect("is valid")).expect("fits");
    assert_eq!(tensors["fc.weight"], [0, 3, 1, 4, 2, 5].map(|i| value(0, i)));
    assert_eq!(loaded.ignored, ["c"]);
    let both = map(r#"{"b": "a"}"#).expect("is valid");
    let error = load_all(&path, &shape_map(&[("a", &[2, 3]), ("c", &[])]), &both);
    let files = ["a".to_string(), "b".to_string()];
    let expected = Fault::Double { name: "a".into(), files };
    assert_eq!(faults(error.expect_err("two for one")), [expected]);
    // A vector cannot be transposed.
    let turned = map(r#"{"b": {"name": "b", "transpose": true}}"#).expect("is valid");
    let error = load_all(&path, &small(), &turned).expect_err("no matrix");
    assert!(matches!(&faults(error)[..], [Fault::WrongShape { name, .. }] if name == "b"));
    for (text, part) in [
        ("[]", "JSON object"),
        ("{", "EOF"),
        (r#"{"a": 1}"#, "expected a name"),
        (r#"{"a": {"transpose": true}}"#, "name"),
        (r#"{"a": {"name": "b", "turn": true}}"#, "name"),
        (r#"{"a": "b.*"}"#, "more *"),
    ] {
        let error = map(text).expect_err(text);
        assert!(error.to_string().contains(part), "{text}: {error}");
        assert_eq!(error.exit_code(), 5);
    }
}
