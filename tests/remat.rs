//! Recomputation: plans within tight budgets keep to them and leave results as
//! they are to the bit.

mod support;

use std::sync::Arc;

use plimsoll::{Device, Error, NullDevice, Plan};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use support::random::{Task, tasks};

/// The smallest budget for which there is a plan.
fn minimum(task: &Task, device: &dyn Device) -> u64 {
    match task.plan_within(1, device.description()) {
        Err(Error::OverBudget(over)) => over.minimum_bytes,
        other => panic!("one byte is too little: {other:?}"),
    }
}

/// How many ops run again.
fn again(plan: &Plan) -> usize {
    plan.parts.iter().flat_map(|p| &p.nodes).filter(|n| n.again).count()
}

/// Without this the tests below would say nothing.
#[test]
fn tight_budgets_make_ops_run_again() {
    let device = NullDevice::new(1 << 40);
    let mut runner = TestRunner::deterministic();
    let used = (0..64).filter(|_| {
        let task = tasks(40).new_tree(&mut runner).expect("a tree").current();
        let plan = task.plan_within(minimum(&task, &device), device.description()).expect("fits");
        again(&plan) > 0
    });
    let used = used.count();
    assert!(used >= 16, "{used} of 64 tasks recompute at their smallest budget");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 64,
        ..ProptestConfig::default()
    })]

    /// From the smallest budget to the largest, in twenty steps: the time never
    /// rises, nor the peak falls.
    #[test]
    fn budgets_are_kept_and_used(task in tasks(40)) {
        let device = NullDevice::new(1 << 40);
        let most = task.plan(device.description()).expect("plans").peak_bytes;
        let least = minimum(&task, &device);
        prop_assert!(least <= most);
        prop_assert!(task.plan_within(least - 1, device.description()).is_err());
        let mut last: Option<Plan> = None;
        for i in 0..20 {
            let budget = least + (most - least) * i / 19;
            let plan = task.plan_within(budget, device.description()).expect("fits");
            prop_assert!(plan.peak_bytes <= budget);
            if let Some(last) = last {
                prop_assert!(plan.step_seconds <= last.step_seconds, "slower with more");
                prop_assert!(plan.peak_bytes >= last.peak_bytes, "smaller with more");
            }
            last = Some(plan);
        }
    }
}

#[cfg(feature = "cpu")]
mod bits {
    use super::*;
    use plimsoll_cpu::CpuDevice;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: 64,
            ..ProptestConfig::default()
        })]

        #[test]
        fn recomputation_does_not_change_results(task in tasks(40)) {
            let device = CpuDevice::with_threads(1).expect("starts").poisoned();
            let plain = Arc::new(task.plan(device.description()).expect("plans"));
            let expected = task.run(&plain, &device);
            let least = minimum(&task, &device);
            for i in 0..4 {
                let budget = least + (plain.peak_bytes - least) * i / 4;
                let plan = Arc::new(task.plan_within(budget, device.description()).expect("fits"));
                prop_assert!(expected == task.run(&plan, &device), "{} ops again", again(&plan));
            }
        }
    }
}
