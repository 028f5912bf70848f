//! What models of images share: their inputs, and the loss of a classifier.

use crate::expression::Scalar;
use crate::graph::{Graph, Loss};
use crate::ops::{CrossEntropy, ValueId};
use crate::{DType, Result, nn};

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

/// The layer `name` from features [n, width] to classes, and its loss against
/// the input `labels` i32 `[n]`.
pub fn classify(
    g: &mut Graph,
    name: &str,
    features: ValueId,
    classes: usize,
    start: Option<nn::Start>,
) -> Result<Loss> {
    let (batch, width) = (g.shape(features)[0], g.shape(features)[1]);
    let labels = g.input("labels", &[batch], DType::I32)?;
    let start = start.unwrap_or_else(|| nn::Start::uniform(width));
    let logits = nn::linear_from(g, name, features, classes, start)?;
    g.cross_entropy(logits, labels, CrossEntropy::default())
}
