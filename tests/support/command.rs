//! Runs the `plimsoll` command.

use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command left.
pub struct Run {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Every line of standard output, each of which must be a JSON object.
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| -> Value {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}"))
        };
        let lines: Vec<Value> = self.stdout.lines().map(parse).collect();
        assert!(lines.iter().all(Value::is_object), "{}", self.stdout);
        lines
    }

    /// The last line of standard output.
    pub fn last(&self) -> Value {
        self.lines().pop().unwrap_or_else(|| panic!("no output; stderr: {}", self.stderr))
    }
}

/// Runs the command on these words, separated by spaces.
pub fn plimsoll(words: &str) -> Run {
    run(&words.split_whitespace().collect::<Vec<_>>())
}

/// Runs the command on these words.
pub fn run(words: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    let run = Run {
        code: output.status.code().expect("no signal ends it"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!run.stderr.contains("panicked"), "{words:?}: {}", run.stderr);
    run
}

/// Asserts an exit code, and that the error for people holds all of `parts`.
#[track_caller]
pub fn fails(words: &[&str], code: i32, parts: &[&str]) -> Run {
    let run = run(words);
    assert_eq!(run.code, code, "{words:?}: {}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("error: "), "{words:?}: {}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "{words:?}: no {part:?} in {}", run.stderr);
    }
    run
}

/// [`fails`] on words separated by spaces.
#[track_caller]
pub fn fails_words(words: &str, code: i32, parts: &[&str]) -> Run {
    fails(&words.split_whitespace().collect::<Vec<_>>(), code, parts)
}
