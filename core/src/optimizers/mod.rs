//! Optimizers: each is a map over weight, gradient and state, in place.

pub mod adam;
pub mod recipe;
pub mod schedule;
pub mod sgd;

pub use adam::Adam;
pub use recipe::{Members, ParameterGroup, Recipe};
pub use schedule::{Decay, Schedule};
pub use sgd::Sgd;

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, Leaf};
use crate::ops::{TensorType, ValueId};

/// Name of the input that holds the step's settings.
pub const HYPER: &str = "plimsoll.hyper";
/// Words of the [`HYPER`] input.
pub const HYPER_WORDS: usize = 4;

/// A rule that updates weights.
///
/// Its `Debug` text names the rule with all its settings: plans hold it, since
/// the settings are part of the planned update.
pub trait Optimizer: std::fmt::Debug + Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Emits the update of one weight.
    fn update(&self, g: &mut Graph, update: &Update) -> Result<()>;

    /// The settings for step `step` (from 1) at a learning rate.
    fn hyper(&self, step: u64, learning_rate: f32) -> [f32; HYPER_WORDS];

    /// The learning rate where the user names none.
    fn default_learning_rate(&self) -> f32;
}

/// One weight's update.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// The weight.
    pub parameter: ValueId,
    /// Σ wᵢ∇lᵢ.
    pub gradient: ValueId,
    /// What the sum is to be multiplied by, `[1]`: one over Σ wᵢ, and clipping.
    pub gradient_scale: ValueId,
    /// The input of [`Optimizer::hyper`].
    pub hyper: ValueId,
    /// Multiplies the learning rate.
    pub learning_rate_scale: f32,
    /// Multiplies the weight decay.
    pub weight_decay_scale: f32,
}

/// The leaf of the step's settings.
pub fn hyper_leaf(g: &mut Graph) -> Result<ValueId> {
    g.leaf(HYPER, TensorType::new([HYPER_WORDS], DType::F32), Leaf::Input)
}
