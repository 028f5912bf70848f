//! What models of images share: their inputs, and the loss of classifiers.

use crate::expression::Scalar;
use crate::graph::{Graph, Loss};
use crate::ops::{CrossEntropy, ValueId};
use crate::{DType, Result};

/// The input `images` u8 [batch, channels, height, width], mapped to [−1, 1].
/// Where the model expects three channels, a grey image gives all of them.
pub fn images(g: &mut Graph, batch: usize, image: [usize; 3], channels: usize) -> Result<ValueId> {
    let [c, height, width] = image;
    let bytes = g.input("images", &[batch, c, height, width], DType::U8)?;
    let x = g.map(&[bytes], |x| x[0].cast(Scalar::F32) * (2.0 / 255.0) - 1.0)?;
    if c == 1 && channels > 1 {
        return g.expand(x, &[batch, channels, height, width]);
    }
    Ok(x)
}

/// Channels of the model for images of so many: grey ones become colours.
pub fn model_channels(image: [usize; 3]) -> usize {
    image[0].max(3)
}

/// The loss of logits [n, classes] against the input `labels` i32 `[n]`.
pub fn class_loss(g: &mut Graph, logits: ValueId) -> Result<Loss> {
    let labels = g.input("labels", &[g.shape(logits)[0]], DType::I32)?;
    g.cross_entropy(logits, labels, CrossEntropy::default())
}
