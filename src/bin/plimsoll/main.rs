//! The `plimsoll` command: lists devices, plans a model into a budget, trains
//! it there, and tests that a device computes what it should.
//!
//! Results go to standard output, progress and errors to standard error. With
//! `--json`, standard output carries one JSON object a line and nothing else;
//! an error is such an object too.

mod choices;
mod conformance;
mod data;
mod devices;
mod failure;
mod output;
mod plan;
mod plot;
mod report;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the loss stopped being a number, or the output cannot be written
  2  usage: unknown model or flag, value out of range
  3  no plan fits the budget; the message names the smallest one that does
  4  device: unknown, failing, or computing wrong results (conformance)
  5  data: missing, damaged, or not what the model takes";

/// Trains neural nets on any GPU inside a memory budget that you name.
#[derive(Parser)]
#[command(name = "plimsoll", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Devices(devices::Arguments),
    Plan(plan::Arguments),
    Train(train::Arguments),
    Conformance(conformance::Arguments),
}

impl Command {
    /// Whether standard output carries JSON alone.
    fn json(&self) -> bool {
        match self {
            Command::Devices(a) => a.json,
            Command::Plan(a) => a.choices.json,
            Command::Train(a) => a.choices.json,
            // It writes its JSON to a file.
            Command::Conformance(_) => false,
        }
    }

    fn run(&self) -> Result<(), Failure> {
        match self {
            Command::Devices(a) => devices::run(a),
            Command::Plan(a) => plan::run(a),
            Command::Train(a) => train::run(a),
            Command::Conformance(a) => conformance::run(a),
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(cli.command.json()),
    }
}
