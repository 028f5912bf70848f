//! Stochastic gradient descent with momentum, as PyTorch's `SGD`.

use super::{HYPER_WORDS, Optimizer, Update};
use crate::error::Result;
use crate::expression::E;
use crate::graph::{Graph, Init, Leaf};
use crate::ledger::Class;

/// v ← μ·v + g; w ← w − η·v, or w − η·(g + μ·v) with Nesterov's look-ahead;
/// weight decay adds λ·w to the gradient. Without momentum there is no state.
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    /// μ.
    pub momentum: f32,
    /// Look ahead.
    pub nesterov: bool,
    /// λ.
    pub weight_decay: f32,
}

impl Default for Sgd {
    fn default() -> Self {
        Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }
    }
}

impl Optimizer for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn update(&self, g: &mut Graph, update: &Update) -> Result<()> {
        let Update { parameter, gradient, gradient_scale, hyper, .. } = *update;
        let decay_scale = update.weight_decay_scale;
        let (tensor, name) = (g.value(parameter).tensor.clone(), g.value(parameter).name.clone());
        // Inputs: gradient, parameter, gradient scale, hyper, velocity.
        let rate = E::at(3, 0) * update.learning_rate_scale;
        let decay = E::at(3, 1) * decay_scale;
        let step = move |x: &[E]| {
            let mean = &x[0] * E::at(2, 0);
            if self.weight_decay * decay_scale == 0.0 { mean } else { mean + &x[1] * decay }
        };
        if self.momentum == 0.0 {
            let w = g.map(&[gradient, parameter, gradient_scale, hyper], |x| {
                let d = step(x);
                &x[1] - rate * d
            })?;
            return g.assign(parameter, w);
        }
        let state = Leaf::State(Init::Zeros, Class::OptimizerState);
        let velocity = g.leaf(&format!("{name}.velocity"), tensor, state)?;
        let out = g.map_many(&[gradient, parameter, gradient_scale, hyper, velocity], |x| {
            let d = step(x);
            let v = &x[4] * self.momentum + &d;
            let direction = if self.nesterov { d + &v * self.momentum } else { v.clone() };
            vec![&x[1] - rate * direction, v]
        })?;
        g.assign(parameter, out[0])?;
        g.assign(velocity, out[1])
    }

    fn hyper(&self, _step: u64, learning_rate: f32) -> [f32; HYPER_WORDS] {
        [learning_rate, self.weight_decay, 0.0, 0.0]
    }

    fn default_learning_rate(&self) -> f32 {
        0.1
    }
}
