//! What ends the command early: exit codes, and errors for people and programs.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll::Error;
use plimsoll::data::DataError;
use plimsoll::weights::WeightsError;
use serde::Serialize;

use crate::output;

/// Why the command stops.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Flags that parse but cannot be met.
    #[error("{0}")]
    Usage(String),
    /// The library's errors.
    #[error(transparent)]
    Plimsoll(#[from] Error),
    /// A data set that cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Weights that cannot be loaded or saved.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Training that can only produce nonsense from here on.
    #[error(
        "the loss is {loss} at step {step}, so that training cannot go on; name a smaller --lr \
         or look for faults in the data"
    )]
    Diverged {
        /// Steps done, from 1, when the loss was read.
        step: u64,
        /// What was read: NaN or an infinity.
        loss: f64,
    },
    /// A device that computes something else than it should.
    #[error("{failed} conformance tests failed on {device}; do not trust its results")]
    Nonconforming {
        /// Id, name and driver.
        device: String,
        /// How many tests.
        failed: usize,
    },
    /// A file that cannot be written.
    #[error("cannot write {}: {source}; name a file in a folder that exists", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Standard output that takes no more.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// An error as `--json` prints it.
#[derive(Serialize)]
#[serde(untagged)]
enum Report<'a> {
    OverBudget { error: &'static str, minimum_bytes: u64, at: &'a str, message: String },
    Other { error: &'static str, message: String },
}

impl Failure {
    /// The exit code of the command.
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Diverged { .. } | Failure::Output(_) | Failure::File { .. } => 1,
            Failure::Usage(_) => 2,
            Failure::Plimsoll(error) => error.exit_code(),
            Failure::Nonconforming { .. } => 4,
            Failure::Data(_) => 5,
            Failure::Weights(error) => error.exit_code(),
        }
    }

    /// The `error` field under `--json`.
    fn kind(&self) -> &'static str {
        match self {
            Failure::Diverged { .. } => "diverged",
            Failure::Output(_) | Failure::File { .. } => "output",
            Failure::Nonconforming { .. } => "device",
            Failure::Usage(_) => "usage",
            Failure::Data(_) | Failure::Weights(_) => "data",
            Failure::Plimsoll(Error::OverBudget(_)) => "over_budget",
            Failure::Plimsoll(Error::Ledger { .. }) => "ledger",
            Failure::Plimsoll(Error::OutOfMemory { .. }) => "out_of_memory",
            Failure::Plimsoll(error) => match error.exit_code() {
                4 => "device",
                5 => "data",
                _ => "usage",
            },
        }
    }

    /// Prints the failure and gives the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        // The reader has gone, as `head` does: nobody is left to be told.
        if matches!(self, Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        let mut message = self.to_string();
        let over = match self {
            Failure::Plimsoll(Error::OverBudget(over)) => Some(over),
            _ => None,
        };
        if let Some(over) = over {
            message.push_str(&format!("; name --budget {} or more", over.minimum_bytes));
        }
        output::note(&format!("error: {message}"));
        if json {
            let error = self.kind();
            output::last_json(&match over {
                Some(over) => Report::OverBudget {
                    error,
                    minimum_bytes: over.minimum_bytes,
                    at: &over.at,
                    message,
                },
                None => Report::Other { error, message },
            });
        }
        ExitCode::from(self.exit_code())
    }
}

/// Prints what clap found in the command line: help, the version, or an error.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    // Standard output or error may be closed; the exit code still tells.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    // The flags could not be parsed, so this looks for the one that matters.
    // `conformance --json` takes a file and leaves standard output to people.
    let mut words = std::env::args_os().skip(1).peekable();
    if words.peek().is_some_and(|a| a != "conformance") && words.any(|a| a == "--json") {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or("");
        output::last_json(&Report::Other { error: "usage", message: message.trim().to_string() });
    }
    ExitCode::from(2)
}
