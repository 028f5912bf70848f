//! Budgets as people write them: `24MiB`, `8GB`, `1048576`, or `80%` of the
//! memory that is free on the device.
//!
//! ```
//! use plimsoll::budget::Budget;
//!
//! assert_eq!("1.5MiB".parse::<Budget>()?, Budget::Bytes(1_572_864));
//! assert_eq!("80%".parse::<Budget>()?, Budget::Share(0.8));
//! assert!("120%".parse::<Budget>().is_err());
//! # Ok::<(), plimsoll::Error>(())
//! ```

use std::str::FromStr;

use crate::{DeviceDescription, Error, Result};

/// The line that memory must not cross.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// So many bytes, at least 1.
    Bytes(u64),
    /// A share of the memory that is free on the device, above 0 and at most 1.
    Share(f64),
}

impl Default for Budget {
    /// 80 % of what is free: the rest is for the driver and other programs.
    fn default() -> Self {
        Budget::Share(0.8)
    }
}

/// Units with their bytes. A number without a unit counts bytes.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// What [`Budget`] takes, for error messages.
const ACCEPTED: &str = "expected a size such as 512KiB, 24MiB, 8GiB, 500kB, 16GB or a number of \
                        bytes, or a share of the device's free memory such as 80%";

impl Budget {
    /// The budget in bytes on a device.
    ///
    /// # Errors
    /// [`Error::Setting`] for a share of a device that does not tell how much
    /// memory is free.
    pub fn bytes(self, device: &DeviceDescription) -> Result<u64> {
        match (self, device.memory_free_bytes) {
            (Budget::Bytes(bytes), _) => Ok(bytes),
            (Budget::Share(share), Some(free)) => Ok((free as f64 * share) as u64),
            (Budget::Share(_), None) => Err(setting(format!(
                "{} ({}) does not tell how much memory is free; name a size, for example \
                 --budget 2GiB",
                device.id, device.name
            ))),
        }
    }
}

impl FromStr for Budget {
    type Err = Error;

    /// # Errors
    /// [`Error::Setting`] for zero, for more than 2⁶⁴ − 1 bytes or 100 %, and
    /// for what is no size at all.
    fn from_str(text: &str) -> Result<Budget> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim());
        let no_size = || setting(format!("'{text}' is no size; {ACCEPTED}"));
        if unit == "%" {
            let percent: f64 = number.parse().map_err(|_| no_size())?;
            return match percent {
                p if p > 100.0 => Err(setting(format!("{text} is more than there is; {ACCEPTED}"))),
                p if p > 0.0 => Ok(Budget::Share(p / 100.0)),
                _ => Err(setting(format!("must be more than 0 %; {ACCEPTED}"))),
            };
        }
        let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let (_, unit_bytes) = known.ok_or_else(no_size)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(no_size());
        }
        match scaled(whole, fraction, *unit_bytes) {
            None => Err(setting(format!("{text} is more than 2⁶⁴ − 1 bytes; {ACCEPTED}"))),
            Some(0) => Err(setting(format!("must be at least 1 byte; {ACCEPTED}"))),
            Some(bytes) => Ok(Budget::Bytes(bytes)),
        }
    }
}

/// `whole.fraction` units in bytes, rounded down; `None` beyond a `u64`.
fn scaled(whole: &str, fraction: &str, unit_bytes: u64) -> Option<u64> {
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let unit = u128::from(unit_bytes);
    // Digits past the 18th are worth less than a byte whatever the unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = digits(fraction)? * unit / 10_u128.pow(fraction.len() as u32);
    let bytes = digits(whole)?.checked_mul(unit)?.checked_add(part)?;
    u64::try_from(bytes).ok()
}

fn setting(message: String) -> Error {
    Error::Setting { name: "budget", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        match text.parse() {
            Ok(Budget::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("1"), Some(1));
        assert_eq!(bytes("512KiB"), Some(512 << 10));
        assert_eq!(bytes("24 mib"), Some(24 << 20));
        assert_eq!(bytes("8GiB"), Some(8 << 30));
        assert_eq!(bytes("500kB"), Some(500_000));
        assert_eq!(bytes("0.1kB"), Some(100));
        assert_eq!(bytes(".5GB"), Some(500_000_000));
        assert_eq!(bytes("18446744073709551615"), Some(u64::MAX));
        assert_eq!("12.5%".parse::<Budget>().ok(), Some(Budget::Share(0.125)));
        assert_eq!("100 %".parse::<Budget>().ok(), Some(Budget::Share(1.0)));
    }

    #[test]
    fn no_sizes() {
        let wrong = [
            "", " ", "0", "0GiB", "0.5", "-1", "-1GiB", "+1", ".", "1.2.3MB", "MiB", "%", "lots",
            "12XB", "12 Mi B", "0%", "-5%", "100.1%", "1e3", "nan%", "inf", "２MiB",
        ];
        for text in wrong {
            let error = text.parse::<Budget>().expect_err(text).to_string();
            assert!(error.contains("80%"), "{text}: {error}");
        }
        for text in ["18446744073709551616", "16777216TiB", "9".repeat(60).as_str()] {
            let error = text.parse::<Budget>().expect_err(text).to_string();
            assert!(error.contains("2⁶⁴"), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_of_free_memory() {
        let device = crate::NullDevice::new(1 << 20);
        let mut description = crate::Device::description(&device).clone();
        description.memory_free_bytes = Some(1000);
        assert_eq!(Budget::default().bytes(&description).ok(), Some(800));
        description.memory_free_bytes = None;
        assert_eq!(Budget::Bytes(7).bytes(&description).ok(), Some(7));
        let error = Budget::default().bytes(&description).expect_err("is unknown").to_string();
        assert!(error.contains("--budget"), "{error}");
    }
}
