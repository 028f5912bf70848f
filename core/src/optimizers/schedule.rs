//! Learning-rate schedules: what the learning rate is multiplied by.

use crate::error::{Error, Result};

/// How the learning rate changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// It stays.
    Constant,
    /// Along half a cosine from 1 to `floor` at the last step, as I. Loshchilov,
    /// F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.
    Cosine {
        /// What is left at the end.
        floor: f32,
    },
    /// Multiplied by `factor` every `every` steps.
    Step {
        /// Steps between two falls.
        every: u64,
        /// What each fall multiplies it by.
        factor: f32,
    },
}

/// A linear warm-up, then a decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Steps over which the rate rises from 0 to its full value.
    pub warmup_steps: u64,
    /// Steps of the whole training.
    pub total_steps: u64,
    /// What follows the warm-up.
    pub decay: Decay,
}

impl Schedule {
    /// The same rate throughout.
    pub const CONSTANT: Schedule =
        Schedule { warmup_steps: 0, total_steps: u64::MAX, decay: Decay::Constant };

    /// Checks the settings' ranges.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::Setting { name: "schedule", message });
        match self.decay {
            Decay::Cosine { floor } if !(0.0..=1.0).contains(&floor) => {
                wrong(format!("a floor of {floor} is outside [0, 1]"))
            }
            Decay::Step { every: 0, .. } => wrong("falls must be at least one step apart".into()),
            Decay::Step { factor, .. } if !(factor.is_finite() && factor >= 0.0) => {
                wrong(format!("a factor of {factor} is not a finite number of at least 0"))
            }
            _ => Ok(()),
        }
    }

    /// The factor at step `step`, from 1.
    pub fn factor(&self, step: u64) -> f32 {
        if step <= self.warmup_steps {
            return (step as f64 / self.warmup_steps as f64) as f32;
        }
        let done = step - 1 - self.warmup_steps;
        match self.decay {
            Decay::Constant => 1.0,
            Decay::Cosine { floor } => {
                let span = self.total_steps.saturating_sub(self.warmup_steps + 1).max(1);
                let progress = (done as f64 / span as f64).min(1.0);
                let wave = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
                (f64::from(floor) + (1.0 - f64::from(floor)) * wave) as f32
            }
            Decay::Step { every, factor } => {
                f64::from(factor).powf((done / every.max(1)) as f64) as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_and_falls() {
        let s = Schedule { warmup_steps: 4, total_steps: 15, decay: Decay::Cosine { floor: 0.1 } };
        assert_eq!(s.factor(1), 0.25);
        assert_eq!(s.factor(4), 1.0);
        assert_eq!(s.factor(5), 1.0);
        assert!((s.factor(10) - 0.55).abs() < 1e-6);
        assert!((s.factor(15) - 0.1).abs() < 1e-6);
        assert!((s.factor(99) - 0.1).abs() < 1e-6);
        let s = Schedule {
            warmup_steps: 0,
            total_steps: 9,
            decay: Decay::Step { every: 3, factor: 0.5 },
        };
        assert_eq!([1, 3, 4, 7].map(|t| s.factor(t)), [1.0, 1.0, 0.5, 0.25]);
        assert_eq!(Schedule::CONSTANT.factor(7), 1.0);
    }

    #[test]
    fn bad_settings_are_typed_errors() {
        for decay in [
            Decay::Cosine { floor: 1.5 },
            Decay::Step { every: 0, factor: 0.5 },
            Decay::Step { every: 1, factor: f32::NAN },
        ] {
            let s = Schedule { warmup_steps: 0, total_steps: 1, decay };
            assert!(matches!(s.check(), Err(Error::Setting { name: "schedule", .. })));
        }
    }
}
