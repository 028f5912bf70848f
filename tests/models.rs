//! The zoo: published parameter counts, names and sizes.

use plimsoll::graph::{Graph, Mode};
use plimsoll::models::{Bert, Domain, NAMES, Objective, Sizes, Style, Unet, by_name};
use plimsoll::optimizers::{Adam, Recipe};
use plimsoll::{Batch, Error, Model, PlanRequest, Trainer, autodiff, devices};

fn traced(model: &dyn Model) -> Graph {
    let mut g = Graph::new(Mode::Train);
    model.forward(&mut g, 2).unwrap_or_else(|e| panic!("{}: {e}", model.name()));
    g
}

fn count(model: &dyn Model) -> usize {
    let g = traced(model);
    autodiff::parameters(&g).iter().map(|p| g.value(*p).tensor.numel()).sum()
}

fn published(name: &str) -> usize {
    count(&*by_name(name, &Sizes::default()).expect("is in the zoo").model)
}

#[test]
fn published_counts() {
    for (name, parameters) in [
        ("mlp", 535_818),
        // (1·6 + 6·16)·25 + 22 of the convolutions; 400·120 + 120·84 + 84·10 + 214.
        ("lenet", 61_706),
        // torchvision's tables of weights.
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("vit-b16", 86_567_656),
        // transformers' models; GPT-2's output layer is its table.
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        // P. Zhang et al., "TinyLlama", 2024: 1.1 billion; here 2·32,000·2048 of
        // the tables, 22 layers of 2048·(2·2048 + 2·256 + 3·5632) + 2·2048, and
        // the last norm.
        ("llama-1.1b", 2 * 32_000 * 2048 + 22 * (2048 * (4608 + 3 * 5632) + 4096) + 2048),
        // transformers' BertForMaskedLM: without the pooler, whose place a
        // transformation of the same size takes, with norm and bias.
        ("bert-base", 109_482_240 + 2 * 768 + 30_522),
        // Here the transformation leads to the narrow table.
        ("albert-base", 11_683_584 - 590_592 + 768 * 128 + 128 + 2 * 128 + 30_000),
        // 3 channels to 2 classes, as the PyTorch implementation of 2017.
        ("unet", 31_037_698),
        // diffusers' UNet2DConditionModel of Stable Diffusion 1.5.
        ("sd-unet", 859_520_964),
    ] {
        assert_eq!(published(name), parameters, "{name}");
    }
}

/// Encoders are counted with the pooler and without a head.
#[test]
fn published_counts_of_encoders() {
    for (net, parameters) in [(Bert::BASE, 109_482_240), (Bert::ALBERT_BASE, 11_683_584)] {
        let classifier = 768 * 3 + 3;
        let net = Bert { objective: Objective::Classes(3), ..net };
        assert_eq!(count(&net), parameters + classifier, "{}", net.name);
    }
}

/// The paper has 19,069,955 for three channels and three classes, one number
/// for each channel of a convolution's output beside its weights; a norm has
/// two, on 2,336 channels.
#[test]
fn published_count_of_the_3d_unet() {
    let net = Unet { channels: 3, classes: 3, ..Unet::volumes() };
    assert_eq!(net.style, Style::Volumes);
    assert_eq!(count(&net), 19_069_955 + 2_336);
}

#[test]
fn every_name_gives_a_model_of_that_name() {
    for name in NAMES {
        let zoo = by_name(name, &Sizes::default()).expect("is in the zoo");
        assert_eq!(zoo.model.name(), name);
        if name.ends_with("tiny") {
            assert!(count(&*zoo.model) < 300_000, "{name}: {}", count(&*zoo.model));
        }
    }
}

#[test]
fn sizes_replace_those_published() {
    let sizes = Sizes { length: Some(32), vocabulary: Some(1000), ..Sizes::default() };
    let zoo = by_name("gpt2-tiny", &sizes).expect("fits");
    assert_eq!(zoo.domain, Domain::Text { vocabulary: 1000, length: 32 });
    let g = traced(&*zoo.model);
    assert_eq!(g.shape(g.leaves()["tokens"]), [2, 32]);
    assert_eq!(g.shape(g.leaves()["wte.weight"]), [1000, 64]);
    let sizes =
        Sizes { channels: Some(1), image: Some([28, 28]), classes: Some(10), ..Sizes::default() };
    let g = traced(&*by_name("resnet18", &sizes).expect("fits").model);
    assert_eq!(g.shape(g.leaves()["images"]), [2, 1, 28, 28]);
    assert_eq!(g.shape(g.leaves()["conv1.weight"]), [64, 3, 7, 7]);
    let sizes = Sizes { volume: Some([8, 16, 24]), ..Sizes::default() };
    let g = traced(&*by_name("unet3d-tiny", &sizes).expect("fits").model);
    assert_eq!(g.shape(g.leaves()["volumes"]), [2, 1, 8, 16, 24]);
}

#[test]
fn sizes_that_do_not_apply_or_fit_are_named() {
    let refused = |model: &str, sizes: Sizes, expected: &str| {
        let result = by_name(model, &sizes)
            .and_then(|zoo| zoo.model.forward(&mut Graph::new(Mode::Train), 2).map(|_| ()));
        match result {
            Err(Error::Setting { name, .. }) => assert_eq!(name, expected, "{model}"),
            other => panic!("{model}: {other:?}"),
        }
    };
    let none = Sizes::default;
    refused("gpt3", none(), "model");
    refused("resnet18", Sizes { length: Some(5), ..none() }, "seq");
    refused("gpt2", Sizes { image: Some([8, 8]), ..none() }, "image");
    refused("gpt2", Sizes { classes: Some(8), ..none() }, "classes");
    refused("unet", Sizes { volume: Some([8, 8, 8]), ..none() }, "volume");
    refused("sd-unet", Sizes { vocabulary: Some(8), ..none() }, "vocabulary");
    refused("unet3d", Sizes { image: Some([8, 8]), ..none() }, "image");
    refused("gpt2", Sizes { length: Some(1025), ..none() }, "seq");
    refused("bert-base", Sizes { length: Some(513), ..none() }, "seq");
    refused("vit-b16", Sizes { image: Some([224, 225]), ..none() }, "image");
    refused("lenet", Sizes { image: Some([8, 8]), ..none() }, "image");
    refused("unet", Sizes { image: Some([512, 500]), ..none() }, "size");
    refused("sd-unet", Sizes { image: Some([64, 60]), ..none() }, "image");
}

/// The loss computed from what the model predicts is the one that it reports.
#[test]
#[cfg(feature = "cpu")]
fn predictions_explain_the_loss() {
    let sizes = Sizes { length: Some(7), vocabulary: Some(19), ..Sizes::default() };
    let model = by_name("llama-tiny", &sizes).expect("fits").model;
    let recipe: Recipe = Adam::adamw().into();
    let device = devices::open("cpu").expect("is there");
    let request = PlanRequest {
        evaluate_items: Some(2),
        predict_items: Some(2),
        ..PlanRequest::new(&*model, &recipe, 3, 64 << 20)
    };
    let mut trainer = Trainer::new(&request, &*device, 0).expect("plans");
    let tokens: Vec<i32> = (0..14).map(|i| i * 5 % 19).collect();
    let targets: Vec<i32> = (0..14).map(|i| i * 7 % 19).collect();
    let data = Batch::from([
        ("tokens", bytemuck::cast_slice(&tokens)),
        ("targets", bytemuck::cast_slice(&targets)),
    ]);
    let loss = trainer.evaluate(&data, 2).expect("evaluates").loss;
    let (shape, logits) = trainer.predict(&data).expect("predicts");
    assert_eq!(shape, [2, 7, 19]);
    let row_loss = |(row, target): (&[f32], &i32)| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        sum.ln() - f64::from(row[*target as usize])
    };
    let mean = logits.chunks(19).zip(&targets).map(row_loss).sum::<f64>() / 14.0;
    assert!((mean - loss).abs() < 1e-6 * mean, "{mean} {loss}");
}

#[test]
#[cfg(feature = "cpu")]
fn what_is_not_predicted_is_a_typed_error() {
    let recipe: Recipe = Adam::adamw().into();
    let device = devices::open("cpu").expect("is there");
    let setting = |result: Result<(), Error>| match result {
        Err(Error::Setting { name, .. }) => assert_eq!(name, "prediction items"),
        other => panic!("{other:?}"),
    };
    let model = by_name("sd-unet-tiny", &Sizes::default()).expect("fits").model;
    for items in [0, 1] {
        let request = PlanRequest {
            predict_items: Some(items),
            ..PlanRequest::new(&*model, &recipe, 1, 64 << 20)
        };
        setting(Trainer::new(&request, &*device, 0).map(|_| ()));
    }
    let request = PlanRequest::new(&*model, &recipe, 1, 64 << 20);
    let mut trainer = Trainer::new(&request, &*device, 0).expect("plans");
    setting(trainer.predict(&Batch::default()).map(|_| ()));
}
