//! Conformance: every device computes the same.
//!
//! The table of op cases in [`ops::cases`](crate::ops::cases) runs on a device
//! forward against a float64 reference and backward against differences of
//! that reference; optimizers run five steps against float64; whole models are
//! trained for twenty steps against the cpu backend. The test suite and the
//! command `plimsoll conformance` share this harness.
//!
//! Errors are normalised mean squares: Σ(x − r)² / Σr², with the bound of
//! [`bound`]. All memory is filled with NaN before a run, so an element that
//! is not written, or memory that is read too early, cannot pass.

mod execute;
mod op_cases;
mod optimizers;
mod trajectories;

use std::sync::Arc;

pub use execute::{Outputs, execute};
use serde::Serialize;

use crate::{Device, Error};

/// What a test found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Within its bound.
    Passed {
        /// The error found.
        error: f64,
        /// The largest error allowed.
        bound: f64,
    },
    /// Not run, and why.
    Skipped {
        /// The reason.
        why: String,
    },
    /// Outside its bound, or an error.
    Failed {
        /// What happened.
        message: String,
    },
}

/// One test of a device.
pub struct Test {
    /// `op/case/pass`.
    pub name: String,
    run: Box<Run>,
}

type Run = dyn Fn(&Arc<dyn Device>) -> Outcome + Send + Sync;

impl Test {
    fn new(
        name: String,
        run: impl Fn(&Arc<dyn Device>) -> Result<Outcome, Error> + Send + Sync + 'static,
    ) -> Test {
        let run = Box::new(move |device: &Arc<dyn Device>| match run(device) {
            Ok(outcome) => outcome,
            Err(e) => Outcome::Failed { message: e.to_string() },
        });
        Test { name, run }
    }

    /// Runs it on a device.
    pub fn run(&self, device: &Arc<dyn Device>) -> Outcome {
        (self.run)(device)
    }
}

/// All tests, in a fixed order.
pub fn tests() -> Vec<Test> {
    let mut out = op_cases::tests();
    out.extend(optimizers::tests());
    out.extend(trajectories::tests());
    out
}

/// Bound on the normalised mean square error of a sum of `terms` products in
/// f32, of functions that are off by `ulps` units in the last place.
///
/// With u = 2⁻²⁴, adding term k to a partial sum of size sₖ commits an error
/// uniform in ±u·|sₖ|, of mean square u²sₖ²/3. For terms of random sign sₖ²
/// grows as k, so the errors sum up to u²n²/6 against a result of mean square
/// n: a normalised u²n/6. For terms of one sign sₖ² grows as k², and the
/// normalised error is u²n/9. (Blocked and tree sums are better still.) To
/// this comes the rounding of the operation itself, u²/3, and (ulps·2u)² for
/// functions. A factor of 16 allows the root of the mean square to be four
/// times its expected value; for single elements that is a bound of 4 σ.
pub fn bound(terms: usize, ulps: f64) -> f64 {
    let u = 2f64.powi(-24);
    16.0 * u * u * (terms as f64 / 6.0 + 1.0 / 3.0 + 4.0 * ulps * ulps)
}

/// Normalised mean square error of `got` against `reference`. Infinite where
/// `got` holds a NaN that `reference` does not; elements for which both are
/// NaN count as right.
pub fn normalised_error(got: &[f64], reference: &[f64]) -> f64 {
    if got.len() != reference.len() {
        return f64::INFINITY;
    }
    let (mut error, mut norm) = (0.0, 0.0);
    for (g, r) in got.iter().zip(reference) {
        if r.is_nan() != g.is_nan() {
            return f64::INFINITY;
        }
        if !r.is_nan() && g != r {
            error += (g - r) * (g - r);
        }
        norm += if r.is_finite() { r * r } else { 0.0 };
    }
    match (error == 0.0, norm == 0.0) {
        (true, _) => 0.0,
        // A reference of zeros must be met up to the smallest normal number.
        (false, true) => error / f64::from(f32::MIN_POSITIVE),
        (false, false) => error / norm,
    }
}

/// Passed or failed by a bound.
fn judge(what: &str, error: f64, bound: f64) -> Outcome {
    if error <= bound {
        return Outcome::Passed { error, bound };
    }
    Outcome::Failed { message: format!("{what}: error {error:.3e} exceeds {bound:.3e}") }
}

/// The worst of several outcomes: a failure, else the one closest to its bound.
fn worst(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let weight = |o: &Outcome| match o {
        Outcome::Failed { .. } => f64::INFINITY,
        Outcome::Passed { error, bound } => error / bound,
        Outcome::Skipped { .. } => -1.0,
    };
    let nothing = Outcome::Failed { message: "nothing to compare".into() };
    outcomes.into_iter().max_by(|a, b| weight(a).total_cmp(&weight(b))).unwrap_or(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_not_hidden() {
        assert_eq!(normalised_error(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(normalised_error(&[f64::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(normalised_error(&[1.0], &[f64::NAN]), f64::INFINITY);
        assert_eq!(normalised_error(&[f64::NAN], &[f64::NAN]), 0.0);
        assert_eq!(normalised_error(&[1.0], &[1.0, 1.0]), f64::INFINITY);
        assert!(normalised_error(&[1e-3], &[0.0]) > 1.0);
        assert!(normalised_error(&[f64::INFINITY], &[1.0]).is_infinite());
        let off = judge("x", normalised_error(&[1.0, 1.001], &[1.0, 1.0]), bound(1000, 8.0));
        assert!(matches!(off, Outcome::Failed { .. }));
    }

    #[test]
    fn names_are_unique() {
        let all = tests();
        let names: std::collections::BTreeSet<_> = all.iter().map(|t| &t.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
