//! `plimsoll conformance`: whether a device computes what it should.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::conformance::{Outcome, tests};
use plimsoll::{DeviceDescription, devices};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// Test that a device computes every op, every optimizer and whole trainings right
///
/// Ops are compared with a float64 reference, gradients with differences of it, trainings with
/// the cpu backend. The exit code is 4 where a test fails.
#[derive(Args)]
pub struct Arguments {
    /// cpu, wgpu, wgpu:N or a part of a device's name [default: the fastest real GPU, else cpu]
    #[arg(long, value_name = "D")]
    device: Option<String>,

    /// Write every test's outcome to this file, as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A test with what it found.
#[derive(Serialize)]
struct Tested {
    name: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The file of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    device: &'a DeviceDescription,
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
    tests: &'a [Tested],
}

/// The tests of one op, optimizer or model.
#[derive(Default)]
struct Group {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Error over bound of the test that came closest to failing.
    closest: f64,
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = match &arguments.device {
        Some(wanted) => devices::open(wanted)?,
        None => devices::open_default()?,
    };
    let description = device.description();
    let names = format!("{} ({}, {})", description.id, description.name, description.driver);
    output::line(format!("device   {names}"))?;
    let tests = tests();
    let bar = ProgressBar::new(tests.len() as u64).with_style(
        ProgressStyle::with_template("[{bar:30}] {pos}/{len}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> "),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let begin = Instant::now();
    let mut tested = Vec::with_capacity(tests.len());
    for test in &tests {
        bar.set_message(test.name.clone());
        tested.push(Tested { name: test.name.clone(), outcome: test.run(&device) });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = begin.elapsed().as_secs_f64();
    let groups = groups(&tested);
    let sum = |of: fn(&Group) -> usize| groups.values().map(of).sum::<usize>();
    let (passed, failed, skipped) = (sum(|g| g.passed), sum(|g| g.failed), sum(|g| g.skipped));
    // Written before and judged after printing, so that neither a closed pipe
    // nor a folder that is not there takes the results along.
    let written = arguments.json.as_ref().map_or(Ok(()), |path| {
        let report =
            Report { device: description, passed, failed, skipped, seconds, tests: &tested };
        let text = serde_json::to_string(&report).map_err(std::io::Error::from);
        text.and_then(|text| output::write_whole(path, &(text + "\n")))
            .map_err(|source| Failure::File { path: path.clone(), source })
    });
    print(&groups, &tested)?;
    output::line(format!(
        "{passed} passed, {failed} failed, {skipped} skipped in {}",
        output::seconds(seconds)
    ))?;
    written?;
    match failed {
        0 => Ok(()),
        failed => Err(Failure::Nonconforming { device: names, failed }),
    }
}

fn groups(tested: &[Tested]) -> BTreeMap<&str, Group> {
    let mut groups = BTreeMap::<&str, Group>::new();
    for Tested { name, outcome } in tested {
        let group = groups.entry(name.split('/').next().unwrap_or(name)).or_default();
        match outcome {
            Outcome::Passed { error, bound } => {
                group.passed += 1;
                group.closest = group.closest.max(error / bound);
            }
            Outcome::Failed { .. } => group.failed += 1,
            Outcome::Skipped { .. } => group.skipped += 1,
        }
    }
    groups
}

fn print(groups: &BTreeMap<&str, Group>, tested: &[Tested]) -> Result<(), Failure> {
    output::line(format!(
        "{:<24}{:>8}{:>8}{:>8}   error / bound",
        "", "passed", "failed", "skipped"
    ))?;
    for (name, group) in groups {
        let Group { passed, failed, skipped, closest } = group;
        let closest = if *passed == 0 { "-".into() } else { format!("{closest:.3}") };
        output::line(format!("{name:<24}{passed:>8}{failed:>8}{skipped:>8}   {closest}"))?;
    }
    for Tested { name, outcome } in tested {
        match outcome {
            Outcome::Passed { .. } => {}
            Outcome::Failed { message } => output::line(format!("failed   {name}: {message}"))?,
            Outcome::Skipped { why } => output::line(format!("skipped  {name}: {why}"))?,
        }
    }
    Ok(())
}
