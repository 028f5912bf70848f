//! The `plimsoll` command from outside: exit codes, errors, JSON, and what the
//! ledger says.

#[path = "support/command.rs"]
mod command;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use command::{Run, fails, fails_words, plimsoll, run};
use serde_json::Value;

#[track_caller]
fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {value}"))
}

#[track_caller]
fn bytes(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} is no whole number in {value}"))
}

/// A folder with the four files of a data set of `shape` images; labels run
/// from 0 to 9 again and again.
fn folder(train: usize, test: usize, shape: [usize; 2]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let write = |name: &str, shape: &[usize], content: Vec<u8>| {
        let mut file = vec![0, 0, 8, shape.len() as u8];
        file.extend(shape.iter().flat_map(|n| (*n as u32).to_be_bytes()));
        file.extend(content);
        fs::write(folder.path().join(name), file).expect("the file can be written");
    };
    for (stem, items) in [("train", train), ("t10k", test)] {
        let pixels = items * shape[0] * shape[1];
        let images = (0..pixels).map(|i| (i * 7 % 251) as u8).collect();
        write(&format!("{stem}-images-idx3-ubyte"), &[items, shape[0], shape[1]], images);
        let labels = (0..items).map(|i| (i % 10) as u8).collect();
        write(&format!("{stem}-labels-idx1-ubyte"), &[items], labels);
    }
    folder
}

fn path(folder: &tempfile::TempDir) -> &str {
    folder.path().to_str().expect("the path is UTF-8")
}

#[test]
fn help_lists_every_flag() {
    let help = plimsoll("--help");
    assert_eq!(help.code, 0);
    for word in ["devices", "plan", "train", "conformance", "Exit codes"] {
        assert!(help.stdout.contains(word), "{word}: {}", help.stdout);
    }
    let flags: [(&str, &[&str]); 4] = [
        ("devices", &["--json"]),
        ("plan", &["MODEL", "--data", "--batch", "--budget", "--device", "--optimizer", "--json"]),
        (
            "train",
            &[
                "MODEL",
                "--data",
                "--batch",
                "--budget",
                "--epochs",
                "--device",
                "--optimizer",
                "--lr",
                "--seed",
                "--threads",
                "--json",
                "adamw",
                "24MiB",
                "80%",
            ],
        ),
        ("conformance", &["--device", "--json <FILE>"]),
    ];
    for (command, flags) in flags {
        let help = plimsoll(&format!("{command} --help"));
        assert_eq!(help.code, 0);
        for flag in flags {
            assert!(help.stdout.contains(flag), "{command}: no {flag} in {}", help.stdout);
        }
    }
    assert_eq!(plimsoll("--version").code, 0);
}

#[test]
fn devices_are_listed() {
    let people = plimsoll("devices");
    assert_eq!(people.code, 0, "{}", people.stderr);
    for word in ["cpu", "kind", "driver", "memory", "features", "limits"] {
        assert!(people.stdout.contains(word), "{word}: {}", people.stdout);
    }
    let devices = plimsoll("devices --json").lines();
    let cpu = devices.iter().find(|d| d["id"] == "cpu").expect("the cpu is a device");
    for field in ["name", "kind", "driver", "memory_total_bytes", "features", "capabilities"] {
        assert!(!cpu[field].is_null(), "{field} in {cpu}");
    }
    assert!(bytes(cpu, "memory_free_bytes") <= bytes(cpu, "memory_total_bytes"));
}

#[test]
fn plan_prints_all_fields() {
    let run = plimsoll("plan mlp --batch 256 --budget 24MiB --device cpu --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.lines().len(), 1);
    let plan = run.last();
    assert_eq!(plan["model"], "mlp");
    assert_eq!(plan["precision"], "f32");
    assert_eq!(bytes(&plan, "batch"), 256);
    assert_eq!(bytes(&plan, "micro_batch") * bytes(&plan, "micro_batches"), 256);
    assert_eq!(bytes(&plan, "budget_bytes"), 24 << 20);
    assert_eq!(bytes(&plan, "parameter_count"), 535_818);
    assert!(bytes(&plan, "pages") >= 1);
    let peak = bytes(&plan, "peak_bytes");
    assert!(peak <= 24 << 20);
    assert!(bytes(&plan, "live_bound_bytes") <= peak);
    let classes = plan["classes"].as_object().expect("classes is an object");
    let sum: u64 = classes.values().map(|b| b.as_u64().expect("bytes")).sum();
    assert_eq!(sum, peak, "{plan}");
    assert!(bytes(&plan["classes"], "parameter") >= 4 * 535_818);
    assert!(number(&plan, "plan_seconds") > 0.0);
    assert!(number(&plan, "step_seconds") >= number(&plan, "unconstrained_step_seconds"));
    assert!(number(&plan, "unconstrained_step_seconds") > 0.0);
    // For people too.
    let people = plimsoll("plan mlp --batch 256 --budget 24MiB --device cpu");
    assert_eq!(people.code, 0);
    for word in ["micro-batch", "parameters", "planned peak", "24.0 MiB"] {
        assert!(people.stdout.contains(word), "{word}: {}", people.stdout);
    }
}

#[test]
fn optimizers_differ_in_their_state() {
    let state = |optimizer: &str| {
        let words = format!("plan mlp --device cpu --optimizer {optimizer} --json");
        bytes(&plimsoll(&words).last()["classes"], "optimizer_state")
    };
    assert_eq!(state("adam"), state("adamw"));
    assert_eq!(2 * state("sgd"), state("adam"));
}

/// The promise about budgets, at its edge.
#[test]
fn the_minimum_is_exact() {
    let train = "train mlp --device cpu --epochs 1 --batch 100 --json --budget";
    let over = plimsoll(&format!("{train} 1MiB"));
    assert_eq!(over.code, 3);
    let error = over.last();
    assert_eq!(over.lines().len(), 1, "nothing goes before the error");
    assert_eq!(error["error"], "over_budget");
    assert!(error["at"].as_str().is_some_and(|at| !at.is_empty()), "{error}");
    let minimum = bytes(&error, "minimum_bytes");
    assert!(over.stderr.contains(&format!("--budget {minimum}")), "{}", over.stderr);

    let done = plimsoll(&format!("{train} {minimum}"));
    assert_eq!(done.code, 0, "{}", done.stderr);
    let done = done.last();
    assert_eq!(done["event"], "done");
    assert_eq!(bytes(&done, "requested_peak_bytes"), bytes(&done, "planned_peak_bytes"));
    assert!(bytes(&done, "requested_peak_bytes") <= minimum);

    let under = plimsoll(&format!("{train} {}", minimum - 1));
    assert_eq!(under.code, 3);
    assert_eq!(bytes(&under.last(), "minimum_bytes"), minimum);
    // Planning and training agree.
    let plan = plimsoll(&format!("plan mlp --batch 100 --device cpu --json --budget {minimum}"));
    assert_eq!(plan.code, 0);
    assert_eq!(plan.last()["peak_bytes"], done["planned_peak_bytes"]);
    assert_eq!(plan.last()["micro_batches"], done["micro_batches"]);
}

#[test]
fn training_prints_events() {
    let words = "train mlp --device cpu --epochs 2 --budget 16MiB --seed 3 --json";
    let run = plimsoll(words);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines = run.lines();
    let of =
        |event: &str| -> Vec<&Value> { lines.iter().filter(|l| l["event"] == event).collect() };
    assert_eq!(lines[0]["event"], "plan");
    assert_eq!(bytes(&lines[0], "batch"), 256);
    assert_eq!(of("epoch").len(), 2);
    assert!(!of("step").is_empty());
    for step in of("step") {
        assert!(number(step, "loss") > 0.0 && number(step, "items_per_second") > 0.0, "{step}");
    }
    for epoch in of("epoch") {
        assert!(number(epoch, "loss") > 0.0, "{epoch}");
        assert!((0.0..=1.0).contains(&number(epoch, "accuracy")), "{epoch}");
    }
    let done = lines.last().expect("there are lines");
    assert_eq!(done["event"], "done");
    // 1,000 images make three whole batches of 256.
    assert_eq!(bytes(done, "steps"), 6);
    assert_eq!(done["loss"], of("epoch")[1]["loss"]);
    assert_eq!(done["accuracy"], of("epoch")[1]["accuracy"]);
    assert!(number(done, "accuracy") > 0.3, "{done}");
    assert!(number(done, "items_per_second") > 0.0);
    assert_eq!(bytes(done, "budget_bytes"), 16 << 20);
    assert!(bytes(done, "micro_batches") >= 1);
    assert_eq!(done["device"], "cpu");
    assert_eq!(done["requested_peak_bytes"], done["planned_peak_bytes"]);
    assert_eq!(done["planned_peak_bytes"], lines[0]["peak_bytes"]);

    // The same seed gives the same losses, whatever the threads; another does not.
    let losses = |run: &Run| -> Vec<String> {
        let lines = run.lines();
        lines.iter().filter(|l| !l["loss"].is_null()).map(|l| l["loss"].to_string()).collect()
    };
    let again = plimsoll(&format!("{words} --threads 3"));
    assert_eq!(losses(&run), losses(&again));
    let other = plimsoll(&words.replace("--seed 3", "--seed 4"));
    assert_ne!(losses(&run), losses(&other));
}

#[test]
fn training_tells_people() {
    let run = plimsoll("train mlp --device cpu --epochs 1 --optimizer sgd --lr 0.05");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let words = [
        "embedded sample",
        "535,818 parameters",
        "micro-batch",
        "planned peak",
        "epoch 1/1",
        "accuracy",
        "items/s",
        "requested peak",
        "difference",
        " 0 bytes",
    ];
    for word in words {
        assert!(run.stdout.contains(word), "{word}: {}", run.stdout);
    }
    assert!(run.stderr.is_empty(), "no progress bar without a terminal: {}", run.stderr);
}

#[test]
fn a_small_folder_shrinks_the_default_batch() {
    let folder = folder(40, 7, [28, 28]);
    let data = path(&folder);
    let run = run(&["train", "mlp", "--device", "cpu", "--data", data, "--epochs", "1", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(bytes(&run.lines()[0], "batch"), 40);
    assert_eq!(bytes(&run.last(), "steps"), 1);
    assert!(run.stderr.contains("40 instead of 256"), "{}", run.stderr);
    // Named outright, a batch is not changed.
    let words = ["train", "mlp", "--device", "cpu", "--data", data, "--batch", "41", "--json"];
    let failed = fails(&words, 5, &["40 items", "41"]);
    assert_eq!(failed.last()["error"], "data");
}

#[test]
fn wrong_flags() {
    fails_words("train resnet", 2, &["resnet", "mlp"]);
    fails_words("train", 2, &["MODEL"]);
    fails_words("sail", 2, &["sail"]);
    fails_words("train mlp --sails 3", 2, &["--sails"]);
    fails_words("train mlp --optimizer lion", 2, &["sgd", "adam", "adamw"]);
    for batch in ["0", "-1", "many", "99999999999999999999999"] {
        fails_words(&format!("train mlp --batch {batch}"), 2, &["--batch", batch]);
        fails_words(&format!("plan mlp --batch {batch}"), 2, &["--batch", batch]);
    }
    for rate in ["inf", "-inf", "NaN", "-0.1", "1e39", "fast"] {
        fails_words(&format!("train mlp --lr {rate}"), 2, &["--lr", "finite"]);
    }
    fails_words("train mlp --epochs 0", 2, &["--epochs"]);
    fails_words("train mlp --seed -1", 2, &[]);
    fails_words("train mlp --device cpu --threads 0", 2, &["--threads"]);
    let json = fails_words("train mlp --batch 0 --json", 2, &[]).last();
    assert_eq!(json["error"], "usage");
    assert!(json["message"].as_str().is_some_and(|m| m.contains("--batch")), "{json}");
    assert_eq!(fails_words("plan resnet --json", 2, &[]).last()["error"], "usage");
}

#[test]
fn wrong_budgets() {
    let wrong =
        ["0", "0GiB", "-1", "-1GiB", "101%", "0%", "99999999999TiB", "lots", "12XiB", "1e9"];
    for budget in wrong {
        let parts = ["--budget", "512KiB", "80%"];
        fails_words(&format!("train mlp --device cpu --budget {budget}"), 2, &parts);
    }
    fails(&["plan", "mlp", "--budget", ""], 2, &["--budget"]);
    let over = fails_words("plan mlp --device cpu --budget 1", 3, &["smallest budget"]);
    assert!(over.stdout.is_empty(), "{}", over.stdout);
    let least = fails_words("train mlp --device cpu --budget 0.0000001% --json", 3, &[]).last();
    assert_eq!(least["error"], "over_budget");
}

#[test]
fn unknown_devices() {
    for command in ["train mlp", "plan mlp", "conformance"] {
        let words = format!("{command} --device abacus");
        fails_words(&words, 4, &["abacus", "there is: cpu"]);
    }
    let json = fails_words("train mlp --device abacus --json", 4, &[]).last();
    assert_eq!(json["error"], "device");
    assert!(json["message"].as_str().is_some_and(|m| m.contains("abacus")), "{json}");
}

#[test]
fn wrong_data() {
    let train = |data: &Path, parts: &[&str]| {
        let data = data.to_str().expect("the path is UTF-8");
        let words = ["train", "mlp", "--device", "cpu", "--data", data, "--json"];
        let error = fails(&words, 5, parts).last();
        assert_eq!(error["error"], "data");
        assert!(error["message"].is_string(), "{error}");
    };
    train(Path::new("no/such/folder"), &["no/such/folder", "does not exist"]);
    let empty = tempfile::tempdir().expect("a folder for the test");
    train(empty.path(), &["train-images-idx3-ubyte"]);
    let other = folder(30, 3, [20, 30]);
    let words = ["train", "mlp", "--image", "28", "--device", "cpu", "--data", path(&other)];
    fails(&words, 5, &["images", "20×30", "--image"]);
    let damaged = folder(30, 3, [28, 28]);
    let labels = damaged.path().join("t10k-labels-idx1-ubyte");
    train(&labels, &["is not a folder"]);
    fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 3, 1, 2]).expect("the file can be written");
    train(damaged.path(), &["t10k-labels-idx1-ubyte", "byte 10"]);
    fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 10]).expect("the file can be written");
    train(damaged.path(), &["label 10"]);
}

#[test]
fn a_diverging_loss_ends_the_run() {
    let words = "train mlp --device cpu --optimizer sgd --lr 1e30 --epochs 2 --json";
    let run = fails_words(words, 1, &["at step", "--lr"]);
    assert_eq!(run.last()["error"], "diverged");
    assert!(run.lines().iter().all(|l| l["event"] != "done"));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    for words in [["train", "mlp", "--json"], ["train", "mlp", "--epochs=1"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(words)
            .args(["--device", "cpu"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let mut stderr = String::new();
        let mut pipe = child.stderr.take().expect("is piped");
        pipe.read_to_string(&mut stderr).expect("stderr is UTF-8");
        let status = child.wait().expect("it ends");
        assert!(stderr.is_empty(), "{stderr}");
        assert_eq!(status.code(), Some(0), "a reader that goes is no error");
    }
}

#[test]
fn conformance_writes_its_file() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("report.json");
    let name = file.to_str().expect("the path is UTF-8");
    let run = run(&["conformance", "--device", "cpu", "--json", name]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(" 0 failed"), "{}", run.stdout);
    let text = fs::read_to_string(&file).expect("the file is there");
    let report: Value = serde_json::from_str(&text).expect("the file is JSON");
    let tests = report["tests"].as_array().expect("tests is a list");
    let sum = ["passed", "failed", "skipped"].map(|f| bytes(&report, f)).iter().sum::<u64>();
    assert_eq!(sum, tests.len() as u64);
    assert_eq!(report["device"]["id"], "cpu");
    for test in tests {
        assert!(test["name"].is_string() && test["outcome"].is_string(), "{test}");
        // Nothing is skipped in silence.
        assert_eq!(test["outcome"] == "skipped", test["why"].is_string(), "{test}");
    }
    let leftovers = fs::read_dir(folder.path()).expect("the folder can be read").count();
    assert_eq!(leftovers, 1, "no partial file stays");
}
