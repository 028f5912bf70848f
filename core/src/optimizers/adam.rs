//! Adam and AdamW, as PyTorch's `Adam` and `AdamW`.
//!
//! Sources: D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization",
//! ICLR 2015; I. Loshchilov, F. Hutter, "Decoupled weight decay
//! regularization", ICLR 2019.

use super::{HYPER_WORDS, Optimizer, Update};
use crate::error::Result;
use crate::expression::E;
use crate::graph::{Graph, Init, Leaf};
use crate::ledger::Class;

/// m ← β₁m + (1 − β₁)g; v ← β₂v + (1 − β₂)g²;
/// w ← w − η·m̂ / (√v̂ + ε), with bias-corrected m̂ and v̂.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// β₁.
    pub beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// ε.
    pub epsilon: f32,
    /// λ.
    pub weight_decay: f32,
    /// AdamW: shrink the weight by 1 − η·λ instead of adding λ·w to the
    /// gradient.
    pub decoupled: bool,
}

/// PyTorch's Adam.
impl Default for Adam {
    fn default() -> Adam {
        Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

impl Adam {
    /// PyTorch's AdamW.
    pub fn adamw() -> Adam {
        Adam { weight_decay: 0.01, decoupled: true, ..Adam::default() }
    }
}

impl Optimizer for Adam {
    fn name(&self) -> &'static str {
        if self.decoupled { "adamw" } else { "adam" }
    }

    fn update(&self, g: &mut Graph, update: &Update) -> Result<()> {
        let Update { parameter, gradient, gradient_scale, hyper, .. } = *update;
        let (rate_scale, decay_scale) = (update.learning_rate_scale, update.weight_decay_scale);
        let (tensor, name) = (g.value(parameter).tensor.clone(), g.value(parameter).name.clone());
        let state = Leaf::State(Init::Zeros, Class::OptimizerState);
        let m = g.leaf(&format!("{name}.moment1"), tensor.clone(), state.clone())?;
        let v = g.leaf(&format!("{name}.moment2"), tensor, state)?;
        let out = g.map_many(&[gradient, parameter, gradient_scale, hyper, m, v], |x| {
            let (step_size, decay, root_correction) = (E::at(3, 0), E::at(3, 1), E::at(3, 2));
            let step_size = step_size * rate_scale;
            let mut grad = &x[0] * E::at(2, 0);
            let mut w = x[1].clone();
            if self.weight_decay * decay_scale != 0.0 {
                if self.decoupled {
                    w = w * (1.0 - decay * (decay_scale * rate_scale));
                } else {
                    grad = grad + &w * (decay * decay_scale);
                }
            }
            let m = &x[4] * self.beta1 + &grad * (1.0 - self.beta1);
            let v = &x[5] * self.beta2 + &grad * &grad * (1.0 - self.beta2);
            let denominator = v.sqrt() * root_correction + self.epsilon;
            vec![w - step_size * &m / denominator, m, v]
        })?;
        g.assign(parameter, out[0])?;
        g.assign(m, out[1])?;
        g.assign(v, out[2])
    }

    /// Step size η/(1 − β₁ᵗ), decay (η·λ, or λ), 1/√(1 − β₂ᵗ).
    fn hyper(&self, step: u64, learning_rate: f32) -> [f32; HYPER_WORDS] {
        let (t, rate) = (step as f64, f64::from(learning_rate));
        let decay = f64::from(self.weight_decay);
        let decay = if self.decoupled { rate * decay } else { decay };
        [
            (rate / (1.0 - f64::from(self.beta1).powf(t))) as f32,
            decay as f32,
            (1.0 / (1.0 - f64::from(self.beta2).powf(t)).sqrt()) as f32,
            0.0,
        ]
    }

    fn default_learning_rate(&self) -> f32 {
        1e-3
    }
}
