//! What a step does with the gradients: the optimizer, which weights it
//! changes, and how strongly.

use std::sync::Arc;

use wildmatch::WildMatch;

use super::Optimizer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ops::ValueId;

/// Added to the norm by which gradients are clipped, as in PyTorch.
const NORM_EPSILON: f32 = 1e-6;
/// Scalars that one map adds up.
const FAN_IN: usize = 6;

/// An optimizer with everything else that decides on the update. Its `Debug`
/// text is part of the plan.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The rule.
    pub optimizer: Arc<dyn Optimizer>,
    /// Scales the whole gradient down to this Euclidean norm where it is
    /// longer, as PyTorch's `clip_grad_norm_`. All gradients then live until
    /// the last is known.
    pub clip_norm: Option<f32>,
    /// Weights that learn otherwise than the rest; the first group that a
    /// weight belongs to holds.
    pub groups: Vec<ParameterGroup>,
    /// Names of weights that keep their values: no gradient is computed for
    /// them and no state is kept. `*` stands for any characters, `?` for one.
    pub frozen: Vec<String>,
}

/// Weights that share settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGroup {
    /// Which weights.
    pub members: Members,
    /// Multiplies the learning rate.
    pub learning_rate_scale: f32,
    /// Multiplies the weight decay.
    pub weight_decay_scale: f32,
}

/// Which weights belong to a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Members {
    /// Those whose name matches; `*` stands for any characters, `?` for one.
    Named(String),
    /// Those of one dimension or none: biases, and scales and shifts of norms.
    Vectors,
}

impl<O: Optimizer + 'static> From<O> for Recipe {
    fn from(optimizer: O) -> Recipe {
        Recipe::new(Arc::new(optimizer))
    }
}

impl Recipe {
    /// All weights alike, no clipping.
    pub fn new(optimizer: Arc<dyn Optimizer>) -> Recipe {
        Recipe { optimizer, clip_norm: None, groups: Vec::new(), frozen: Vec::new() }
    }

    /// The same with clipping.
    pub fn clip_norm(mut self, norm: f32) -> Recipe {
        self.clip_norm = Some(norm);
        self
    }

    /// The same without weight decay on biases and norms.
    pub fn without_decay_on_vectors(self) -> Recipe {
        self.group(ParameterGroup {
            members: Members::Vectors,
            learning_rate_scale: 1.0,
            weight_decay_scale: 0.0,
        })
    }

    /// The same with a further group.
    pub fn group(mut self, group: ParameterGroup) -> Recipe {
        self.groups.push(group);
        self
    }

    /// The same with the weights frozen whose names match.
    pub fn freeze(mut self, names: impl Into<String>) -> Recipe {
        self.frozen.push(names.into());
        self
    }

    /// Learning rate scale and weight decay scale of a weight.
    pub fn scales(&self, name: &str, rank: usize) -> (f32, f32) {
        let belongs = |g: &&ParameterGroup| match &g.members {
            Members::Named(pattern) => WildMatch::new(pattern).matches(name),
            Members::Vectors => rank <= 1,
        };
        self.groups
            .iter()
            .find(belongs)
            .map_or((1.0, 1.0), |g| (g.learning_rate_scale, g.weight_decay_scale))
    }

    /// Checks the settings' ranges.
    pub fn check(&self) -> Result<()> {
        let wrong = |name, value: f32, wanted: &str| {
            Err(Error::Setting { name, message: format!("{value} is not {wanted}") })
        };
        if let Some(norm) = self.clip_norm.filter(|n| !(n.is_finite() && *n > 0.0)) {
            return wrong("clip norm", norm, "a finite number above 0");
        }
        let allowed = |x: f32| x.is_finite() && x >= 0.0;
        for g in &self.groups {
            for scale in [g.learning_rate_scale, g.weight_decay_scale] {
                if !allowed(scale) {
                    return wrong("parameter group", scale, "a finite number of at least 0");
                }
            }
        }
        Ok(())
    }

    /// By what the sums of gradients are multiplied before the update, `[1]`:
    /// one over Σ wᵢ (0 where that is 0), times the clipping.
    pub(crate) fn gradient_scale(
        &self,
        g: &mut Graph,
        sums: &[ValueId],
        weight_sum: ValueId,
    ) -> Result<ValueId> {
        let inverse = g.map(&[weight_sum], |w| w[0].equal(0.0).select(0.0, 1.0 / w[0].clone()))?;
        let Some(most) = self.clip_norm.filter(|_| !sums.is_empty()) else { return Ok(inverse) };
        let mut squares = Vec::new();
        for sum in sums {
            let square = g.map(&[*sum], |x| &x[0] * &x[0])?;
            let axes: Vec<usize> = (0..g.shape(square).len()).collect();
            let total = g.sum(square, &axes)?;
            squares.push(g.reshape(total, &[1])?);
        }
        while squares.len() > 1 {
            squares = squares
                .chunks(FAN_IN)
                .map(|some| g.map(some, |x| x[1..].iter().fold(x[0].clone(), |a, b| a + b)))
                .collect::<Result<_>>()?;
        }
        g.map(&[squares[0], inverse], |x| {
            let norm = x[0].sqrt() * &x[1];
            &x[1] * (most / (norm + NORM_EPSILON)).min(1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizers::Sgd;

    #[test]
    fn first_group_that_matches_holds() {
        let recipe =
            Recipe::from(Sgd::default()).without_decay_on_vectors().group(ParameterGroup {
                members: Members::Named("head.*".into()),
                learning_rate_scale: 10.0,
                weight_decay_scale: 1.0,
            });
        assert_eq!(recipe.scales("head.bias", 1), (1.0, 0.0));
        assert_eq!(recipe.scales("head.weight", 2), (10.0, 1.0));
        assert_eq!(recipe.scales("body.weight", 2), (1.0, 1.0));
    }

    #[test]
    fn settings_out_of_range_are_typed_errors() {
        for norm in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let recipe = Recipe::from(Sgd::default()).clip_norm(norm);
            assert!(matches!(recipe.check(), Err(Error::Setting { name: "clip norm", .. })));
        }
    }
}
