//! Plans of random models: they pass the checker, are met by the ledger to the
//! byte, waste little, and do not change results.

mod support;

use std::sync::Arc;

use plimsoll::ledger::Ledger;
use plimsoll::models::{NAMES, Sizes, by_name};
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::planner::verify::verify;
use plimsoll::{Device, NullDevice, Plan, PlanRequest, plan};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use support::AMPLE;
use support::random::{models, tasks};

/// Pages as small as the largest tensor allows: no fewer, many of them.
fn smallest_pages(plan: &Plan) -> u64 {
    let align = plan.device.alignment_bytes;
    plan.storages.iter().map(|s| s.bytes.next_multiple_of(align)).max().expect("has storages")
}

/// What every plan promises.
fn check_plan(plan: &Plan, device: &NullDevice) {
    verify(plan, plan.peak_bytes).expect("passes the checker");
    assert!(verify(plan, plan.peak_bytes - 1).is_err(), "the checker minds the budget");
    let ledger = Ledger::new(plan.peak_bytes);
    let executor = device.load(&Arc::new(plan.clone()), &ledger).expect("keeps to the budget");
    let report = ledger.report();
    assert_eq!(report.peak_bytes, plan.peak_bytes, "requested, planned");
    assert_eq!(report.held.iter().map(|r| r.bytes).sum::<u64>(), plan.peak_bytes);
    drop(executor);
    assert_eq!(ledger.report().used_bytes, 0);
    assert!(plan.arena_bytes >= plan.live_bound_bytes);
    for s in &plan.storages {
        assert!(s.offset_bytes + s.bytes <= device.description().page_bytes, "crosses a page");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_hold(task in tasks(40)) {
        let device = NullDevice::new(1 << 40);
        let plan = task.plan(device.description()).expect("plans");
        check_plan(&plan, &device);
        prop_assert!(plan == task.plan(device.description()).expect("plans"), "another plan");
        let paged = NullDevice::new(smallest_pages(&plan));
        check_plan(&task.plan(paged.description()).expect("plans"), &paged);
    }
}

/// Share by which a plan's arena exceeds its most live bytes.
fn waste(plan: &Plan) -> f64 {
    plan.arena_bytes as f64 / plan.live_bound_bytes as f64 - 1.0
}

#[test]
fn models_of_the_zoo_waste_little() {
    let device = NullDevice::new(1 << 40);
    let recipes: [Recipe; 2] = [Sgd::default().into(), Adam::adamw().into()];
    // Those that can be planned ten times in a moment.
    for name in NAMES.into_iter().filter(|n| *n == "mlp" || n.ends_with("tiny")) {
        let model = by_name(name, &Sizes::default()).expect("is in the zoo").model;
        for recipe in &recipes {
            for k in [1, 2, 3, 7, 100] {
                let request = PlanRequest {
                    evaluate_items: Some(999),
                    micro_batches: Some(k),
                    split_batch_statistics: true,
                    ..PlanRequest::new(&*model, recipe, 100, AMPLE)
                };
                let plan = plan(&request, device.description()).expect("plans");
                let waste = waste(&plan);
                let of = format!("{name}, {} k = {k}: {waste}", recipe.optimizer.name());
                // The perceptron's values nest; packing those of others is hard.
                assert!(if name == "mlp" { waste == 0.0 } else { waste < 0.05 }, "{of}");
            }
        }
    }
}

/// Of 300 random models (the same in every run), those whose arena is larger
/// than the bound of live bytes, and by how much: offsets are a packing
/// problem, and not every packing meets its bound. When planning changes, this
/// list does; it may not grow, and no ratio may reach 1.05.
const MISSES: [(usize, f64); 3] = [(86, 1.0122), (142, 1.0139), (222, 1.009)];

#[test]
fn random_models_meet_the_bound_but_for_named_cases() {
    let mut runner = TestRunner::deterministic();
    let device = NullDevice::new(1 << 40);
    let mut missed = Vec::new();
    for case in 0..300 {
        let task = tasks(60).new_tree(&mut runner).expect("a tree").current();
        let ratio = 1.0 + waste(&task.plan(device.description()).expect("plans"));
        if ratio > 1.0 {
            missed.push((case, (ratio * 1e4).round() / 1e4));
        }
    }
    assert_eq!(missed, MISSES);
    assert!(MISSES.iter().all(|(_, ratio)| *ratio < 1.05));
}

/// Runs a task on the CPU with two plans that differ in memory alone.
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
        fn memory_does_not_change_results(task in tasks(30)) {
            let device = CpuDevice::with_threads(1).expect("starts");
            let plan = Arc::new(task.plan(device.description()).expect("plans"));
            let plain = task.run(&plan, &device);
            let poisoned = CpuDevice::with_threads(1).expect("starts").poisoned();
            prop_assert!(plain == task.run(&plan, &poisoned), "freed memory is read");

            // Many small pages instead of one: every offset is another.
            let mut description = device.description().clone();
            description.page_bytes = smallest_pages(&plan);
            let paged = Arc::new(task.plan(&description).expect("plans"));
            prop_assert!(plain == task.run(&paged, &poisoned), "offsets change results");
        }
    }
}

/// Faults put into sound plans: the checker finds each.
mod faults {
    use super::*;
    use plimsoll::models::Mlp;
    use plimsoll::planner::{Part, PartKind, PlannedNode};
    use plimsoll::{Error, Model};

    /// Plans with one and with uneven micro-batches, an evaluation, one page
    /// and many, and a few random ones.
    fn plans() -> Vec<Plan> {
        let mlp = Mlp::new(&[20, 9, 7, 5]).expect("valid widths").with_dropout(0.5);
        let adam = Adam::adamw().into();
        let with = |model: &dyn Model, k: usize, page: u64| {
            let request = PlanRequest {
                evaluate_items: Some(7),
                micro_batches: Some(k),
                ..PlanRequest::new(model, &adam, 4, AMPLE)
            };
            plan(&request, NullDevice::new(page).description()).expect("plans")
        };
        let mut out = vec![with(&mlp, 1, 1 << 40), with(&mlp, 3, 1 << 40), with(&mlp, 3, 1024)];
        let mut runner = TestRunner::deterministic();
        for k in [1, 2, 3] {
            let model = models(12).new_tree(&mut runner).expect("a tree").current();
            out.push(with(&model, k, 1 << 40));
        }
        out
    }

    /// Puts faults into every plan; each must be found.
    fn each_is_found(name: &str, faults: impl Fn(&Plan, &mut dyn FnMut(&str, Plan))) {
        for plan in plans() {
            verify(&plan, plan.peak_bytes).expect("is sound");
            let mut count = 0;
            faults(&plan, &mut |what, broken| {
                count += 1;
                let found = verify(&broken, AMPLE);
                assert!(matches!(found, Err(Error::Plan(_))), "{name}, {what}: {found:?}");
            });
            assert!(count > 0, "{name}: no such fault can be put into a plan");
        }
    }

    fn touched(node: &PlannedNode) -> impl Iterator<Item = usize> + '_ {
        node.inputs.iter().chain(&node.outputs).map(|o| o.storage).chain(node.workspace)
    }

    /// For every storage, the stretch of each part in which it is needed:
    /// first and last node, counted from 1; 0 is the upload.
    fn stretches(plan: &Plan) -> Vec<Vec<Option<(usize, usize)>>> {
        let parts_of = |s: usize| {
            plan.parts.iter().filter(|p| p.nodes.iter().any(|n| touched(n).any(|t| t == s))).count()
        };
        let stretch = |s: usize, part: &Part| {
            let evaluation = !part.kind.trains();
            let whole = Some((0, part.nodes.len()));
            // A weight, or a gradient's sum: needed before and after, but for
            // what is stored into unread.
            let carried = plan.storages[s].persistent || (parts_of(s) > 1 && !evaluation);
            let reads = |n: &PlannedNode| n.inputs.iter().any(|o| o.storage == s);
            let stores = |n: &PlannedNode| n.outputs.iter().any(|o| o.storage == s);
            if carried && part.nodes.iter().any(reads) {
                return whole;
            }
            if carried {
                let from = part.nodes.iter().position(stores).map_or(0, |n| n + 1);
                return Some((from, part.nodes.len()));
            }
            let mut at: Vec<usize> = Vec::new();
            if part.inputs.iter().any(|(_, o)| o.storage == s) {
                at.push(0);
            }
            let here = |(_, n): &(usize, &PlannedNode)| touched(n).any(|t| t == s);
            at.extend(part.nodes.iter().enumerate().filter(here).map(|(n, _)| n + 1));
            Some((*at.first()?, *at.last()?))
        };
        let all = |s: usize| plan.parts.iter().map(|p| stretch(s, p)).collect();
        (0..plan.storages.len()).map(all).collect()
    }

    #[test]
    fn two_that_live_at_once_in_one_place() {
        each_is_found("overlap", |plan, put| {
            let stretches = stretches(plan);
            let together = |a: usize, b: usize| {
                stretches[a]
                    .iter()
                    .zip(&stretches[b])
                    .any(|(a, b)| matches!((a, b), (Some(a), Some(b)) if a.0 <= b.1 && b.0 <= a.1))
            };
            for a in 0..plan.storages.len() {
                for b in (0..plan.storages.len()).filter(|b| *b != a && together(a, *b)) {
                    let mut broken = plan.clone();
                    let (page, offset) = (plan.storages[a].page, plan.storages[a].offset_bytes);
                    (broken.storages[b].page, broken.storages[b].offset_bytes) = (page, offset);
                    put(&format!("{} on {}", plan.storages[b].name, plan.storages[a].name), broken);
                }
            }
        });
    }

    #[test]
    fn freed_too_early() {
        each_is_found("free", |plan, put| {
            for (p, part) in plan.parts.iter().enumerate() {
                for n in 1..part.nodes.len() {
                    let node = &part.nodes[n];
                    let read = |s: &&usize| node.inputs.iter().any(|o| o.storage == **s);
                    for s in node.frees.iter().filter(read) {
                        let mut broken = plan.clone();
                        broken.parts[p].nodes[n].frees.retain(|t| t != s);
                        broken.parts[p].nodes[n - 1].frees.push(*s);
                        put(&format!("{} before {}", plan.storages[*s].name, node.label), broken);
                    }
                }
            }
        });
    }

    #[test]
    fn out_of_place() {
        each_is_found("place", |plan, put| {
            for (s, storage) in plan.storages.iter().enumerate() {
                let mut broken = vec![plan.clone(); 5];
                let page = plan.pages[storage.page];
                broken[0].storages[s].offset_bytes = page;
                broken[1].storages[s].offset_bytes = u64::MAX - 255;
                broken[2].storages[s].offset_bytes += 4;
                broken[3].storages[s].page = plan.pages.len();
                broken[4].storages[s].bytes -= 4;
                let what = ["past the page", "past all", "unaligned", "no page", "too small"];
                for (what, broken) in what.iter().zip(broken) {
                    put(&format!("{} {what}", storage.name), broken);
                }
            }
        });
    }

    #[test]
    fn dependent_nodes_exchanged() {
        each_is_found("exchange", |plan, put| {
            for (p, part) in plan.parts.iter().enumerate() {
                for n in 1..part.nodes.len() {
                    let (a, b) = (&part.nodes[n - 1], &part.nodes[n]);
                    let made = |v: &u32| a.output_values.contains(v);
                    let read = |s: usize| a.inputs.iter().any(|o| o.storage == s);
                    let stored = |o: &&plimsoll::ops::Operand| plan.storages[o.storage].persistent;
                    if b.input_values.iter().any(made)
                        || b.outputs.iter().filter(stored).any(|o| read(o.storage))
                    {
                        let mut broken = plan.clone();
                        broken.parts[p].nodes.swap(n - 1, n);
                        put(&format!("{} and {}", a.label, b.label), broken);
                    }
                }
            }
        });
    }

    #[test]
    fn a_node_left_out() {
        each_is_found("left out", |plan, put| {
            for (p, part) in plan.parts.iter().enumerate() {
                for (n, node) in part.nodes.iter().enumerate() {
                    // What stores into a weight is missed by nobody in the plan.
                    let made = |v: &u32| node.output_values.contains(v);
                    let mut later = part.nodes[n + 1..].iter().flat_map(|n| &n.input_values);
                    let sum = |s: usize| !plan.storages[s].persistent;
                    let begins =
                        part.kind == PartKind::Begin && node.outputs.iter().any(|o| sum(o.storage));
                    if later.any(made) || begins {
                        let mut broken = plan.clone();
                        broken.parts[p].nodes.remove(n);
                        put(&node.label, broken);
                    }
                }
            }
        });
    }

    #[test]
    fn requests_too_small() {
        each_is_found("request", |plan, put| {
            for (i, request) in plan.requests.iter().enumerate() {
                let mut broken = plan.clone();
                broken.requests[i].bytes -= 4;
                put(&request.what, broken.clone());
                if i < plan.pages.len() {
                    // The sum is right, the page is too small.
                    broken.peak_bytes -= 4;
                    put(&format!("{}, consistently", request.what), broken);
                }
            }
            let mut broken = plan.clone();
            broken.requests.pop();
            put("one fewer", broken);
        });
    }
}
