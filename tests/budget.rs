//! The line holds: budgets down to the smallest, refusals, long runs.

mod support;

use std::sync::Arc;

use plimsoll::data::TrainTest;
use plimsoll::graph::Mode;
use plimsoll::ledger::Ledger;
use plimsoll::models::Mlp;
use plimsoll::optimizers::Recipe;
use plimsoll::{
    Batch, DType, Device, Error, Graph, Model, NullDevice, Plan, PlanRequest, Trainer, plan,
};
use support::error::{bound, check, functions};
use support::{AMPLE, adamw, devices, losses, sample, small_mlp};

const WIDTHS: [usize; 4] = [784, 33, 17, 10];
const BATCH: usize = 24;
const EVALUATE: usize = 50;
const RATE: f32 = 1e-3;

/// What the tests of this file plan, but for the budget.
struct Setup {
    model: Mlp,
    recipe: Recipe,
}

impl Setup {
    fn new() -> Setup {
        Setup { model: small_mlp(), recipe: adamw() }
    }

    fn request(&self, budget_bytes: u64) -> PlanRequest<'_> {
        PlanRequest {
            evaluate_items: Some(EVALUATE),
            ..PlanRequest::new(&self.model, &self.recipe, BATCH, budget_bytes)
        }
    }

    fn plan(&self, device: &dyn Device, budget_bytes: u64) -> plimsoll::Result<Plan> {
        plan(&self.request(budget_bytes), device.description())
    }

    fn load(&self, plan: Plan, device: &dyn Device, ledger: &Ledger) -> plimsoll::Result<Trainer> {
        Trainer::load(Arc::new(plan), self.recipe.clone(), device, ledger.clone(), 7)
    }

    fn minimum_bytes(&self, device: &dyn Device) -> u64 {
        match self.plan(device, 1) {
            Err(Error::OverBudget(e)) => e.minimum_bytes,
            other => panic!("one byte is enough: {:?}", other.map(|p| p.peak_bytes)),
        }
    }
}

fn evaluate(trainer: &mut Trainer, data: &TrainTest) -> f64 {
    let images = &data.test.images[..EVALUATE * data.test.item_bytes()];
    let labels = bytemuck::cast_slice(&data.test.labels[..EVALUATE]);
    let batch = Batch::from([("images", images), ("labels", labels)]);
    trainer.evaluate(&batch, EVALUATE).expect("evaluates").loss
}

#[test]
fn every_budget_down_to_the_smallest_holds() {
    let (setup, data) = (Setup::new(), sample());
    // The sums of a forward pass, a backward pass and the batch, and the
    // functions of softmax and AdamW; the second loss comes after one step.
    let close = bound(2 * WIDTHS.iter().sum::<usize>() + BATCH) + functions(8.0);
    for device in devices() {
        let name = &device.description().name;
        let all = setup.plan(&*device, AMPLE).expect("plans").peak_bytes;
        let minimum = setup.minimum_bytes(&*device);
        assert!(minimum < all, "{name}: splitting saves nothing");
        let (mut before, mut whole): (Option<Plan>, _) = (None, None);
        for i in 0..=20 {
            let budget = all - (all - minimum) * i / 20;
            let plan = setup.plan(&*device, budget).expect("every budget down to the minimum");
            let count = plan.micro_batches.len();
            assert!(plan.peak_bytes <= budget, "{name}, {budget}: {}", plan.peak_bytes);
            if let Some(before) = &before {
                assert!(before.micro_batches.len() <= count, "{name}, {budget}: fewer");
                assert!(before.peak_bytes >= plan.peak_bytes, "{name}, {budget}: higher");
                if *before == plan {
                    continue; // It has been run.
                }
            }
            let ledger = Ledger::new(budget);
            let mut trainer = setup.load(plan.clone(), &*device, &ledger).expect("loads");
            let mut found = losses(&mut trainer, &data, 2, RATE);
            found.push(evaluate(&mut trainer, &data));
            let report = ledger.report();
            assert_eq!(report.peak_bytes, plan.peak_bytes, "{name}, {budget}");
            assert_eq!(report.used_bytes, plan.peak_bytes, "{name}, {budget}");
            drop(trainer);
            assert_eq!(ledger.report().used_bytes, 0, "{name}, {budget}");
            let label = format!("{name}, {count} micro-batches");
            check(&label, &found, whole.get_or_insert_with(|| found.clone()), close);
            before = Some(plan);
        }
        let last = before.expect("planned").peak_bytes;
        assert_eq!(last, minimum, "{name}: the smallest budget is used up");
    }
}

#[test]
fn below_the_smallest_budget_the_minimum_is_named() {
    let setup = Setup::new();
    for device in devices() {
        let minimum = setup.minimum_bytes(&*device);
        for budget in [0, 1, minimum / 2, minimum - 1] {
            let error = setup.plan(&*device, budget).expect_err("too small");
            let Error::OverBudget(e) = error else { panic!("{error}") };
            assert_eq!((e.minimum_bytes, e.budget_bytes), (minimum, budget));
            assert!(!e.tensors.is_empty() && !e.at.is_empty() && e.forbidden.is_empty(), "{e}");
        }
        // A forbidden lever is named, and its minimum is its own.
        let request = PlanRequest { micro_batches: Some(1), ..setup.request(minimum) };
        let error = plan(&request, device.description()).expect_err("needs splitting");
        let Error::OverBudget(e) = error else { panic!("{error}") };
        assert_eq!(e.minimum_bytes, setup.plan(&*device, AMPLE).expect("plans").peak_bytes);
        assert_eq!(e.forbidden, ["micro-batch"]);
    }
}

#[test]
fn a_refusal_at_any_request_leaves_nothing_behind() {
    let setup = Setup::new();
    for device in devices() {
        let name = &device.description().name;
        let plan = setup.plan(&*device, AMPLE).expect("plans");
        for (i, request) in plan.requests.iter().enumerate() {
            let ledger = Ledger::new(AMPLE);
            ledger.inject_refusal(i as u64);
            match setup.load(plan.clone(), &*device, &ledger).map(|_| ()) {
                Err(Error::OutOfMemory { what, request_bytes, .. }) => {
                    assert_eq!((&what, request_bytes), (&request.what, request.bytes), "{name}");
                }
                other => panic!("{name}, request {i}: {other:?}"),
            }
            let report = ledger.report();
            assert_eq!((report.used_bytes, report.requests), (0, i as u64), "{name}");
            assert!(report.held.is_empty(), "{name}");
        }
        // One past the last: loading makes no request that was not planned.
        let ledger = Ledger::new(AMPLE);
        ledger.inject_refusal(plan.requests.len() as u64);
        let trainer = setup.load(plan.clone(), &*device, &ledger).expect("nothing is refused");
        assert_eq!(ledger.report().held, plan.requests, "{name}");
        drop(trainer);
        assert_eq!(ledger.report().used_bytes, 0, "{name}");
    }
}

#[test]
fn a_ledger_under_the_plan_refuses() {
    let setup = Setup::new();
    for device in devices() {
        let plan = setup.plan(&*device, AMPLE).expect("plans");
        let ledger = Ledger::new(plan.peak_bytes - 1);
        let result = setup.load(plan, &*device, &ledger).map(|_| ());
        assert!(matches!(result, Err(Error::Ledger { .. })), "{result:?}");
        assert_eq!(ledger.report().used_bytes, 0);
    }
}

#[test]
fn senseless_settings_are_typed_errors() {
    let setup = Setup::new();
    let device = NullDevice::new(1 << 30);
    let fails = |request: PlanRequest<'_>| {
        plan(&request, device.description()).map(|p| p.peak_bytes).expect_err("is senseless")
    };
    let requests = [
        PlanRequest { batch: 0, ..setup.request(AMPLE) },
        PlanRequest { evaluate_items: Some(0), ..setup.request(AMPLE) },
        PlanRequest { micro_batches: Some(0), ..setup.request(AMPLE) },
        PlanRequest { micro_batches: Some(BATCH + 1), ..setup.request(AMPLE) },
    ];
    for request in requests {
        let error = fails(request);
        assert!(matches!(error, Error::Setting { .. }), "{error:?}");
    }
    assert!(matches!(fails(setup.request(0)), Error::OverBudget(_)));
    for widths in [&[][..], &[4], &[4, 0, 2], &[0, 2]] {
        assert!(matches!(Mlp::new(widths), Err(Error::Setting { .. })), "{widths:?}");
    }
    let mut g = Graph::new(Mode::Train);
    for shape in [&[0][..], &[3, 0], &[0, 3]] {
        assert!(matches!(g.input("x", shape, DType::F32), Err(Error::Shape { .. })), "{shape:?}");
    }
    assert!(matches!(setup.model.forward(&mut g, 0), Err(Error::Shape { .. })));
    // A tensor larger than a page is named, before anything else is tried.
    let small = NullDevice::new(4096);
    let error = plan(&setup.request(AMPLE), small.description()).expect_err("does not fit");
    assert!(matches!(error, Error::PageOverrun { page_bytes: 4096, .. }), "{error:?}");
}

#[test]
fn data_of_the_wrong_size_is_a_typed_error() {
    let setup = Setup::new();
    let images = vec![0; BATCH * 784];
    let labels = [0u8; 4 * BATCH];
    let batches = [
        Batch::from([("images", &images[..])]),
        Batch::from([("images", &images[1..]), ("labels", &labels[..])]),
        Batch::from([("images", &images[..]), ("labels", &labels[4..])]),
        Batch::from([("images", &[][..]), ("labels", &labels[..])]),
    ];
    for device in devices() {
        let plan = setup.plan(&*device, AMPLE).expect("plans");
        let mut trainer = setup.load(plan, &*device, &Ledger::new(AMPLE)).expect("loads");
        for batch in &batches {
            let result = trainer.train_step(batch, RATE);
            assert!(matches!(result, Err(Error::Input { .. })), "{result:?}");
        }
        assert!(matches!(trainer.read("nothing"), Err(Error::Input { .. })));
        assert!(matches!(trainer.write("fc1.bias", &[0; 4]), Err(Error::Input { .. })));
        // The trainer is none the worse for it.
        assert!(losses(&mut trainer, &sample(), 1, RATE)[0].is_finite());
    }
}

#[test]
fn nothing_is_requested_after_loading() {
    let (setup, data) = (Setup::new(), sample());
    for device in devices() {
        let name = &device.description().name;
        let plan = setup.plan(&*device, AMPLE).expect("plans");
        let ledger = Ledger::new(plan.peak_bytes);
        let mut trainer = setup.load(plan, &*device, &ledger).expect("loads");
        let loaded = ledger.report();
        for epoch in 0..5 {
            losses(&mut trainer, &data, 10, RATE);
            evaluate(&mut trainer, &data);
            assert_eq!(ledger.report(), loaded, "{name}, epoch {epoch}");
        }
        assert_eq!(trainer.steps(), 50);
    }
}

#[cfg(all(target_os = "linux", feature = "cpu"))]
mod resident {
    use super::*;

    /// Names the variable that marks the process of the measurement.
    const MEASURE: &str = "PLIMSOLL_TEST_MEASURES_MEMORY";

    /// Bytes by which 500 steps may grow the process: a leak of a kilobyte a step
    /// shows, the allocator's habits do not.
    const GROWTH_BYTES: u64 = 512 << 10;

    /// The test runs itself in a process of its own, where no other test
    /// allocates.
    #[test]
    fn memory_does_not_grow() {
        if std::env::var_os(MEASURE).is_none() {
            let me = std::env::current_exe().expect("tests know their file");
            let arguments = ["resident::memory_does_not_grow", "--exact", "--nocapture"];
            let output = std::process::Command::new(me).args(arguments).env(MEASURE, "1").output();
            let output = output.expect("starts");
            let text =
                String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let (setup, data) = (Setup::new(), sample());
        let device = plimsoll::devices::open("cpu").expect("is there");
        let minimum = setup.minimum_bytes(&*device);
        let plan = setup.plan(&*device, minimum).expect("plans");
        let mut trainer = setup.load(plan, &*device, &Ledger::new(minimum)).expect("loads");
        let mut epochs = |count: usize| {
            for _ in 0..count {
                losses(&mut trainer, &data, 50, RATE);
                evaluate(&mut trainer, &data);
            }
        };
        epochs(2);
        let before = resident_bytes();
        epochs(10);
        let after = resident_bytes();
        assert!(after <= before + GROWTH_BYTES, "grew from {before} to {after} bytes");
    }

    /// Resident memory of this process.
    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("is listed");
        let kilobytes = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        kilobytes.expect("is a number") << 10
    }
}
