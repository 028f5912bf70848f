//! Training as a whole, on every device.

mod support;

use plimsoll::models::Mlp;
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
#[test]
fn two_hundred_steps_agree_with_the_cpu() {
    let data = sample();
    let model = Mlp::new(&Mlp::FASHION_MNIST).expect("valid");
    let run = |device: &dyn plimsoll::Device| {
        let mut t = trainer(&model, &adamw(), device, 32, None).expect("plans");
        losses(&mut t, &data, 200, 1e-3)
    };
    let cpu = run(&plimsoll_cpu::CpuDevice::new().expect("starts"));
    for device in devices().iter().filter(|d| d.description().backend != "cpu") {
        let got = run(&**device);
        let worst = got.iter().zip(&cpu).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{}: worst difference {worst:.2e}", device.description().name);
        assert!(got.iter().all(|l| l.is_finite()) && worst < 1e-3, "{worst}");
    }
}
