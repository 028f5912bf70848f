//! Models of the zoo against the libraries that publish them: their weights
//! load unchanged, and loss and every gradient agree. `generate_models.py`
//! tells where the files come from.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll::models::{Bert, Gpt2, Llama, ResNet, SdUnet, Unet, Vit};
use plimsoll::optimizers::{Recipe, Sgd};
use plimsoll::weights::{NameMap, load_model};
use plimsoll::{Batch, Model};
use safetensors::{Dtype, SafeTensors};
use support::error::{bound, check};
use support::evaluate::gradients_by_step;
use support::{devices, trainer};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models").join(name)
}

/// The tensors of a file: shape and words.
fn tensors(name: &str) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<u32>)> {
    let bytes = std::fs::read(file(name)).expect("is read");
    let data = SafeTensors::deserialize(&bytes).expect("is whole");
    let of = |(key, view): (&str, safetensors::tensor::TensorView<'_>)| {
        let words = bytemuck::pod_collect_to_vec(view.data());
        (key.to_string(), (view.dtype(), view.shape().to_vec(), words))
    };
    data.iter().map(of).collect()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

/// The model with the weights of a file, on every device: loss and gradients
/// of one step, whole and, on the CPU, in as many micro-batches as there are
/// items.
fn run(name: &str, model: &dyn Model) {
    let expected = tensors(&format!("{name}.expected.safetensors"));
    // Images are bytes.
    let inputs: BTreeMap<&str, Vec<u8>> = expected
        .iter()
        .filter_map(|(key, (_, _, words))| {
            let input = key.strip_prefix("in.")?;
            let bytes = match input {
                "images" => words.iter().map(|w| *w as u8).collect(),
                _ => bytemuck::cast_slice(words).to_vec(),
            };
            Some((input, bytes))
        })
        .collect();
    let items = expected.iter().find(|(k, _)| k.starts_with("in.")).expect("has inputs").1.1[0];
    let batch: Batch<'_> = inputs.iter().map(|(k, v)| (*k, &v[..])).collect();
    // A value is a sum over a weight's rows of such values, a gradient one over
    // its columns of such gradients, a weight's gradient one over all positions.
    let weights = expected.iter().filter(|(k, _)| k.starts_with("grad."));
    let lengths = weights.map(|(_, (_, shape, words))| match shape[..] {
        [rows, ..] if shape.len() > 1 => rows + words.len() / rows,
        _ => 0,
    });
    let positions = inputs.values().map(|bytes| bytes.len() / 4).max().unwrap_or(1);
    let close = bound(lengths.sum::<usize>() + positions);
    let plain: Recipe = Sgd { momentum: 0.0, ..Sgd::default() }.into();
    let batch_norm = name == "resnet" || name == "unet";
    for device in devices() {
        // A new size of micro-batch means new pipelines, slow to build in software.
        let software = device.description().backend != "cpu";
        for k in if batch_norm || software { vec![1] } else { vec![1, items] } {
            let label = format!("{name} on {}, {k} micro-batches", device.description().name);
            let mut trainer = trainer(model, &plain, &*device, items, Some(k))
                .unwrap_or_else(|e| panic!("{label}: {e}"));
            let map = NameMap::published(model.name());
            let loaded = load_model(&mut trainer, file(&format!("{name}.safetensors")), &map);
            loaded.unwrap_or_else(|e| panic!("{label}: {e}"));
            let gradients = gradients_by_step(&mut trainer, &batch);
            let loss = [trainer.loss().expect("there is one")];
            check(&format!("{label}, loss"), &loss, &floats(&expected["out.loss"].2), close);
            let names: Vec<&String> = gradients.keys().collect();
            let known: Vec<&str> =
                expected.keys().filter_map(|k| k.strip_prefix("grad.")).collect();
            assert_eq!(names, known, "{label}");
            for (weight, gradient) in &gradients {
                let (_, _, words) = &expected[&format!("grad.{weight}")];
                let label = format!("{label}, gradient of {weight}");
                let Some(layer) = weight.strip_suffix("key.bias") else {
                    check(&label, gradient, &floats(words), close);
                    continue;
                };
                // The same for all scores of a row, which softmax does not see:
                // its gradient is rounding, to be small beside the query's.
                let query = &expected[&format!("grad.{layer}query.bias")].2;
                let size = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
                let query: Vec<f64> = floats(query).iter().map(|x| f64::from(*x)).collect();
                assert!(size(gradient) <= close * size(&query), "{label}: {gradient:?}");
            }
        }
    }
}

const VOCABULARY: usize = 40;

fn small_bert() -> Bert {
    Bert { vocabulary: VOCABULARY, positions: 12, length: 10, width: 16, ..Bert::TINY }
}

#[test]
fn gpt2() {
    let small = Gpt2 { vocabulary: VOCABULARY, positions: 12, length: 10, width: 16, ..Gpt2::TINY };
    run("gpt2", &small);
}

#[test]
fn llama() {
    let small = Llama { vocabulary: VOCABULARY, length: 10, width: 16, inner: 24, ..Llama::TINY };
    run("llama", &small);
}

#[test]
fn bert() {
    run("bert", &small_bert());
}

#[test]
fn albert() {
    run("albert", &Bert { name: "albert-tiny", albert: Some(8), ..small_bert() });
}

#[test]
fn resnet() {
    run("resnet", &ResNet { image: [1, 16, 16], classes: 5, width: 4, ..ResNet::tiny() });
}

#[test]
fn vit() {
    run("vit", &Vit { image: [3, 8, 8], classes: 5, patch: 4, width: 16, ..Vit::TINY });
}

#[test]
fn unet() {
    run("unet", &Unet { size: vec![8, 8], width: 4, ..Unet::tiny() });
}

#[test]
fn unet3d() {
    run("unet3d", &Unet { size: vec![4, 8, 4], levels: 2, ..Unet::volumes_tiny() });
}

#[test]
fn sd_unet() {
    let small = SdUnet {
        latent: [4, 4, 4],
        widths: vec![8, 16],
        context: [3, 6],
        groups: 4,
        ..SdUnet::tiny()
    };
    run("sd_unet", &small);
}
