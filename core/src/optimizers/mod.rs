//! Optimizers: each is a map over weight, gradient and state, in place.

pub mod adam;
pub mod sgd;

pub use adam::Adam;
pub use sgd::Sgd;

use crate::dtype::DType;
use crate::error::Result;
use crate::expression::E;
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

    /// Emits the update of one weight. `gradient` is Σ wᵢ∇lᵢ and
    /// `weight_sum` `[1]` is Σ wᵢ, by which the rule divides (zero weight gives
    /// a zero gradient); `hyper` is the input of [`Optimizer::hyper`].
    fn update(
        &self,
        g: &mut Graph,
        parameter: ValueId,
        gradient: ValueId,
        weight_sum: ValueId,
        hyper: ValueId,
    ) -> Result<()>;

    /// The settings for step `step` (from 1) at a learning rate.
    fn hyper(&self, step: u64, learning_rate: f32) -> [f32; HYPER_WORDS];

    /// The learning rate where the user names none.
    fn default_learning_rate(&self) -> f32;
}

/// The leaf of the step's settings.
pub fn hyper_leaf(g: &mut Graph) -> Result<ValueId> {
    g.leaf(HYPER, TensorType::new([HYPER_WORDS], DType::F32), Leaf::Input)
}

/// The mean gradient: the sum over the summed weight, 0 where that is 0. The
/// weight's inverse is the same for all elements, so devices compute it once.
fn mean_gradient(sum: &E, weight_sum: E) -> E {
    let none = weight_sum.equal(0.0);
    sum * none.select(0.0, 1.0 / weight_sum)
}
