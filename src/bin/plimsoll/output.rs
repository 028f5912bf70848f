//! Printing that survives a closed pipe, and numbers for people.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use bytesize::ByteSize;
use serde::Serialize;

/// Prints a line to standard output.
pub fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints a JSON object as a line to standard output.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    line(serde_json::to_string(value)?)
}

/// Prints the JSON object of an error, after which the command ends anyway.
pub fn last_json(value: &impl Serialize) {
    let _ = json(value);
}

/// Prints a line to standard error, where that is open.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes the whole file or none of it.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // It may not be there; what matters is the first error.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// `10.3 MiB`.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 page`, `2 pages`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
}

/// `3.2 ms`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!([2e-5, 0.0032, 12.0].map(seconds), ["20.0 µs", "3.2 ms", "12.0 s"]);
        assert_eq!(count(1, "page", "pages"), "1 page");
        assert_eq!(count(2000, "page", "pages"), "2,000 pages");
    }
}
