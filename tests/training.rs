//! Training as a whole, on every device.

mod support;

use std::io::Write;

use plimsoll::models::Mlp;
use plimsoll::optimizers::{Recipe, Sgd};
use support::{adamw, devices, losses, sample, small_mlp, trainer};

#[test]
fn loss_falls_on_every_device() {
    let data = sample();
    for device in devices() {
        let mut t = trainer(&small_mlp(), &adamw(), &*device, 100, None).expect("plans");
        let l = losses(&mut t, &data, 20, 1e-2);
        assert!(l[19] < 0.6 * l[0], "{}: {l:?}", device.description().name);
        let ledger = t.ledger();
        assert_eq!(ledger.peak_bytes, t.plan().peak_bytes, "{}", device.description().name);
    }
}

#[test]
fn losses_do_not_depend_on_threads_or_poison() {
    let data = sample();
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid").with_dropout(0.1);
    let run = |device: plimsoll_cpu::CpuDevice| {
        let mut t = trainer(&model, &adamw(), &device, 250, None).expect("plans");
        let losses = losses(&mut t, &data, 6, 1e-3);
        (losses, t.read_f32("fc2.weight").expect("is there"))
    };
    let one = run(plimsoll_cpu::CpuDevice::with_threads(1).expect("starts"));
    let again = run(plimsoll_cpu::CpuDevice::with_threads(1).expect("starts"));
    let three = run(plimsoll_cpu::CpuDevice::with_threads(3).expect("starts"));
    let poisoned = run(plimsoll_cpu::CpuDevice::with_threads(2).expect("starts").poisoned());
    assert!(one == again, "a second run differs");
    assert!(one == three, "another number of threads differs: {:?} {:?}", one.0, three.0);
    assert!(one == poisoned, "poisoned memory is read: {:?} {:?}", one.0, poisoned.0);
}

/// The model at its full width over 200 steps: curves within 1e-3 of the CPU's.
///
/// By SGD: Adam turns gradients that are nothing but rounding (sums that cancel)
/// into steps of full size, so that under it even the CPU differs from itself
/// by up to 8e-2 at a rate of 1e-3 when only the order of its sums is changed
/// (two micro-batches instead of one), and no two devices can agree better.
/// The control makes sure that the comparison here is free of that.
#[test]
fn two_hundred_steps_agree_with_the_cpu() {
    const RATE: f32 = 5e-3;
    let data = sample();
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let sgd: Recipe = Sgd::default().into();
    let run = |device: &dyn plimsoll::Device, micro_batches| {
        let mut t = trainer(&model, &sgd, device, 32, micro_batches).expect("plans");
        losses(&mut t, &data, 200, RATE)
    };
    let worst = |a: &[f64], b: &[f64]| {
        assert!(a.iter().chain(b).all(|l| l.is_finite()));
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    let device = plimsoll_cpu::CpuDevice::new().expect("starts");
    let cpu = run(&device, Some(1));
    let control = worst(&cpu, &run(&device, Some(2)));
    assert!(control < 1e-5, "the order of sums alone changes the losses by {control}");
    for device in devices().iter().filter(|d| d.description().backend != "cpu") {
        let worst = worst(&cpu, &run(&**device, Some(1)));
        println!("{}: worst difference {worst:.2e}", device.description().name);
        assert!(worst < 1e-3, "{worst}");
    }
}

/// The accuracy of a training on the full Fashion-MNIST, where Debian's
/// `dataset-fashion-mnist` is installed.
fn accuracy_on_the_full_set(model: &str, flags: &str) -> Option<f64> {
    let folder = "/usr/share/datasets/fashion-mnist";
    if !std::path::Path::new(folder).is_dir() {
        // Written past the capture of passing tests: no skip is silent.
        let _ = writeln!(std::io::stderr(), "skipped: {folder} is not there");
        return None;
    }
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["train", model, "--data", folder, "--device", "cpu", "--json"])
        .args(flags.split_whitespace())
        .output()
        .expect("the command runs");
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let last = text.lines().last().expect("a last line");
    let done: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert!(done["accuracy"].is_f64(), "{last}");
    done["accuracy"].as_f64()
}

/// AdamW reaches 0.86 (PyTorch: 0.853 to 0.874 over eight seeds).
#[test]
fn three_epochs_of_the_full_set_reach_their_accuracy() {
    let flags = "--batch 256 --optimizer adamw --lr 0.001 --epochs 3";
    assert!(accuracy_on_the_full_set("mlp", flags).is_none_or(|a| a >= 0.86));
}

#[test]
fn two_epochs_of_a_small_resnet_reach_their_accuracy() {
    let flags = "--batch 128 --lr 0.003 --schedule cosine --epochs 2";
    assert!(accuracy_on_the_full_set("resnet-tiny", flags).is_none_or(|a| a >= 0.88));
}
