//! Where the time of a training step goes.

use std::collections::BTreeMap;

use plimsoll::{Batch, Trainer};

/// Prints the share of each op, from the median of each node over 30 steps.
pub fn print(name: &str, t: &mut Trainer, batch: &Batch<'_>) {
    let plan = t.plan().clone();
    let mut seconds = BTreeMap::<(usize, usize), Vec<f64>>::new();
    for _ in 0..30 {
        for time in t.profile_step(batch, 1e-3).expect("runs") {
            seconds.entry((time.part, time.node)).or_default().push(time.seconds);
        }
    }
    let mut by_op = BTreeMap::<&str, f64>::new();
    let mut total = 0.0;
    for ((part, node), mut seconds) in seconds {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        let node = &plan.parts[part].nodes[node];
        *by_op.entry(node.op.name()).or_default() += median;
        total += median;
        if std::env::var_os("PLIMSOLL_BENCH_NODES").is_some() {
            println!("  {:40} {:8.1} µs", node.label, median * 1e6);
        }
    }
    println!("{name}: {:.3} ms a step, op by op", total * 1e3);
    for (op, seconds) in by_op {
        println!("  {op:24} {:5.1} %", 100.0 * seconds / total);
    }
}
