//! The `plimsoll` command over the zoo: every model plans at its published
//! size, every small one trains, on every kind of data.

#[path = "support/command.rs"]
mod command;

use std::fs;
use std::path::Path;

use command::{Run, fails, fails_words, plimsoll, run};
use plimsoll::models::NAMES;

/// Trains on the CPU for one epoch.
#[track_caller]
fn trains(words: &str, data: Option<&Path>) -> Run {
    let line = format!("train {words} --device cpu --epochs 1 --budget 512MiB --json");
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let data = data.map(|d| d.to_str().expect("the path is UTF-8"));
    words.extend(data.into_iter().flat_map(|d| ["--data", d]));
    let run = run(&words);
    assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    let done = run.last();
    assert_eq!(done["event"], "done");
    assert_eq!(done["planned_peak_bytes"], done["requested_peak_bytes"], "{line}");
    assert!(done["loss"].as_f64().is_some_and(f64::is_finite), "{line}: {done}");
    run
}

/// An array in NumPy's format.
fn npy(path: &Path, descr: &str, shape: &[usize], bytes: &[u8]) {
    let sizes: String = shape.iter().map(|s| format!("{s}, ")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(bytes);
    fs::write(path, file).expect("the file can be written");
}

fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

#[test]
fn every_model_plans_at_its_published_size() {
    for name in NAMES {
        let run = plimsoll(&format!("plan {name} --device cpu --budget 1TiB --json"));
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        assert_eq!(run.last()["model"], name);
    }
    let run = plimsoll("plan gpt2 --seq 128 --batch 2 --device cpu --budget 4GiB --json");
    assert_eq!(run.last()["parameter_count"], 124_439_808);
    let run = plimsoll("plan vit-b16 --image 64x32 --batch 2 --device cpu --budget 4GiB --json");
    // 8 patches in place of 196.
    assert_eq!(run.last()["parameter_count"], 86_567_656 - (196 - 8) * 768);
    let run = plimsoll("plan unet3d --volume 16x32x32 --device cpu --budget 4GiB --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn images_in_folders_train() {
    let folder = tempdir();
    for (part, count) in [("train", 6), ("val", 2)] {
        for class in ["cat", "dog", "emu"] {
            let path = folder.path().join(part).join(class);
            fs::create_dir_all(&path).expect("a folder");
            for i in 0..count {
                let shade = |x, y| image::Rgb([x as u8 * i, y as u8 * 3, 9]);
                let file = path.join(format!("{i}.png"));
                image::RgbImage::from_fn(40, 30, shade).save(file).expect("is saved");
            }
        }
    }
    let run = trains("resnet-tiny --channels 3 --image 24x16 --batch 9", Some(folder.path()));
    assert_eq!(run.last()["steps"], 2);
    trains("lenet --image 20 --batch 9", Some(folder.path()));
    let words = ["train", "lenet", "--classes", "2", "--device", "cpu", "--data"];
    let path = folder.path().to_str().expect("UTF-8");
    fails(&[&words[..], &[path]].concat(), 5, &["3 classes"]);
    fs::write(folder.path().join("val/emu/x.png"), b"none").expect("is written");
    fails(&["train", "lenet", "--device", "cpu", "--data", path], 5, &["x.png", "PNG"]);
    fs::remove_dir_all(folder.path().join("val")).expect("is removed");
    fails(&["train", "lenet", "--device", "cpu", "--data", path], 5, &["none of test, val"]);
}

#[test]
fn text_trains_and_weights_come_back() {
    let folder = tempdir();
    let text = folder.path().join("text.txt");
    fs::write(&text, "To be, or not to be, that is the question. ".repeat(40)).expect("is written");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_string();
    let (weights, plot) = (file("a.safetensors"), file("a.svg"));
    let words = "gpt2-tiny --seq 16 --batch 8 --schedule cosine --warmup 3 --clip 1 --lr 0.01";
    let first = trains(&format!("{words} --save {weights} --plot {plot}"), Some(&text));
    assert!(fs::read_to_string(&plot).is_ok_and(|svg| svg.contains("<svg")));
    // Without a change of the weights the loss is that of the run before.
    let again = trains(
        &format!("gpt2-tiny --seq 16 --batch 8 --lr 0 --optimizer sgd --load {weights}"),
        Some(&text),
    );
    assert_eq!(first.last()["loss"], again.last()["loss"]);
    let frozen = trains(
        &format!("gpt2-tiny --seq 16 --batch 8 --freeze * --freeze h.1.* --load {weights} --lr 0"),
        Some(&text),
    );
    assert_eq!(first.last()["loss"], frozen.last()["loss"]);
    let text = text.to_str().expect("UTF-8");
    for (more, code, parts) in [
        (format!("--plot {}", file("a.gif")), 2, [".svg", "a.gif"]),
        (format!("--load {}", file("none.safetensors")), 5, ["none.safetensors", ""]),
        (format!("--load {weights} --load-map {text}"), 5, ["text.txt", "JSON"]),
        ("--save no/such/a.safetensors".into(), 1, ["no/such", "folder that exists"]),
        ("--plot no/such/a.svg".into(), 1, ["no/such", "folder that exists"]),
        ("--clip 0".into(), 2, ["--clip", "above 0"]),
        (format!("--tokenizer {text}"), 5, ["text.txt", "tokenizer.json"]),
        ("--seq 4096".into(), 5, ["4096", "--seq"]),
    ] {
        let line = format!("train gpt2-tiny --device cpu --epochs 1 --data {text} {more}");
        fails_words(&line, code, &parts);
    }
}

#[test]
fn numbers_of_tokens_train() {
    let folder = tempdir();
    let file = folder.path().join("tokens.npy");
    let tokens: Vec<u8> =
        (0..2000u16).flat_map(|i| (i % 200 * (i % 7)).min(255).to_le_bytes()).collect();
    npy(&file, "<u2", &[2000], &tokens);
    trains("bert-tiny --seq 32 --batch 8", Some(&file));
    trains("llama-tiny --seq 32 --batch 8", Some(&file));
    let large: Vec<u8> = (0..2000i32).flat_map(|i| i.to_le_bytes()).collect();
    npy(&file, "<i4", &[2000], &large);
    let words = ["train", "gpt2-tiny", "--device", "cpu", "--data", file.to_str().expect("UTF-8")];
    fails(&words, 5, &["element 256 is 256", "from 0 to 255"]);
    npy(&file, "<i4", &[1999], &large);
    fails(&words, 5, &["tokens.npy", "[1999]"]);
    npy(&file, ">i4", &[2000], &large);
    fails(&words, 5, &["tokens.npy", "little-endian"]);
    fs::write(&file, b"no array").expect("is written");
    fails(&words, 5, &["tokens.npy", "numpy.save"]);
}

/// The smallest of tokenizers: words between spaces.
#[test]
fn a_tokenizer_cuts_the_text() {
    let folder = tempdir();
    let path = |name: &str| folder.path().join(name);
    let words = ["be", "not", "or", "to", "[MASK]", "[UNK]"];
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        words.iter().enumerate().map(|(i, w)| (w.to_string(), i.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
        "added_tokens": []
    });
    fs::write(path("tokenizer.json"), tokenizer.to_string()).expect("is written");
    fs::write(path("text.txt"), "to be or not to be ".repeat(100)).expect("is written");
    let tokenizer = path("tokenizer.json").to_str().expect("UTF-8").to_string();
    let run = trains(
        &format!("bert-tiny --seq 8 --batch 8 --tokenizer {tokenizer}"),
        Some(&path("text.txt")),
    );
    let plan = &run.lines()[0];
    // A table of 6 tokens in place of 257, and as many biases.
    let bytes = trains("bert-tiny --seq 8 --batch 8", Some(&path("text.txt")));
    let count = |plan: &serde_json::Value| plan["parameter_count"].as_u64().expect("a number");
    assert_eq!(count(&bytes.lines()[0]) - count(plan), (257 - 6) * (64 + 1));
    fails_words(&format!("train gpt2-tiny --tokenizer {tokenizer}"), 2, &["--data"]);
    fails_words(&format!("plan unet --tokenizer {tokenizer}"), 2, &["--tokenizer"]);
}

#[test]
fn volumes_train() {
    let folder = tempdir();
    let size = [12, 20, 17];
    let count: usize = size.iter().product();
    for name in ["a", "b", "c"] {
        let values: Vec<u8> =
            (0..count).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
        let labels: Vec<u8> = (0..count).map(|i| u8::from(i % 7 > 4)).collect();
        npy(&folder.path().join(format!("{name}.npy")), "<f4", &size, &values);
        npy(&folder.path().join(format!("{name}.labels.npy")), "|u1", &size, &labels);
    }
    // 2 · 2·3·3 patches to learn from, 1 · 2·3·3 to be judged by.
    let run = trains("unet3d-tiny --volume 8 --batch 6", Some(folder.path()));
    assert_eq!(run.last()["steps"], 6);
    let path = folder.path().to_str().expect("UTF-8");
    let fails = |more: &str, code, parts: &[&str]| {
        let line = format!("train unet3d-tiny --device cpu --data {path} {more}");
        fails_words(&line, code, parts);
    };
    fails("--volume 16", 5, &["[12, 20, 17]", "--volume"]);
    fails("--volume 8x8", 2, &["8x8"]);
    npy(&folder.path().join("c.labels.npy"), "|u1", &size, &vec![2; count]);
    fails("--volume 8", 5, &["c.labels.npy", "from 0 to 1"]);
    npy(&folder.path().join("c.labels.npy"), "|u1", &[count], &vec![0; count]);
    fails("--volume 8", 5, &["c.labels.npy", "[12, 20, 17]"]);
}

#[test]
fn pictures_with_masks_train() {
    let folder = tempdir();
    for part in ["images", "masks"] {
        fs::create_dir_all(folder.path().join(part)).expect("a folder");
    }
    for i in 0..4u8 {
        let inside = |x: u32, y: u32| x / 8 == u32::from(i) && y > 9;
        let picture = image::RgbImage::from_fn(32, 24, |x, y| {
            image::Rgb([if inside(x, y) { 200 } else { 30 }, x as u8, i])
        });
        let mask = image::GrayImage::from_fn(32, 24, |x, y| {
            image::Luma([if inside(x, y) { 255 } else { 0 }])
        });
        picture.save(folder.path().join(format!("images/{i}.png"))).expect("is saved");
        mask.save(folder.path().join(format!("masks/{i}.png"))).expect("is saved");
    }
    trains("unet-tiny --image 16x24 --batch 3", Some(folder.path()));
    let path = folder.path().to_str().expect("UTF-8");
    let words = ["train", "unet-tiny", "--classes", "3", "--device", "cpu", "--data", path];
    fails(&words, 5, &["masks", "255", "from 0 to 2"]);
    fs::remove_file(folder.path().join("masks/0.png")).expect("is removed");
    fails(&words, 5, &["0.png", "mask"]);
}

#[test]
fn latents_train() {
    let folder = tempdir();
    let floats = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|i| ((i % 11) as f32 / 5.0 - 1.0).to_le_bytes()).collect()
    };
    npy(&folder.path().join("latents.npy"), "<f4", &[9, 4, 8, 8], &floats(9 * 256));
    npy(&folder.path().join("context.npy"), "<f4", &[9, 7, 24], &floats(9 * 7 * 24));
    let run = trains("sd-unet-tiny --image 8 --batch 4", Some(folder.path()));
    assert_eq!(run.last()["steps"], 2);
    assert!(run.last()["accuracy"].is_null());
    let path = folder.path().to_str().expect("UTF-8");
    let words = ["train", "sd-unet-tiny", "--device", "cpu", "--data", path];
    fails(&words, 5, &["latents.npy", "[9, 4, 16, 16]"]);
}

#[test]
fn samples_train_without_data() {
    trains("vit-tiny", None);
    trains("albert-tiny --seq 16 --batch 64", None);
    trains("unet-tiny --image 16 --batch 32", None);
    trains("unet3d-tiny --volume 8 --batch 16", None);
    fails_words("train resnet18 --device cpu", 2, &["--data", "--image 28x28"]);
}
