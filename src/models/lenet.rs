//! LeNet-5, as commonly built: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner,
//! "Gradient-based learning applied to document recognition", 1998, with ReLU
//! and max pooling.

use super::images::{class_loss, images};
use crate::graph::{Graph, Loss, Model};
use crate::ops::{Convolution, Pool, ValueId};
use crate::{Error, Result, nn};

/// Two convolutions of 5×5 with pooling, then layers of 120, 84 and `classes`.
///
/// Inputs: `images` u8 [n, C, H, W], `labels` i32 `[n]`.
#[derive(Clone, Debug)]
pub struct LeNet {
    /// Channels, height and width.
    pub image: [usize; 3],
    /// Outputs.
    pub classes: usize,
}

impl LeNet {
    /// For 28×28 grey images of ten classes: 61,706 parameters.
    pub const MNIST: LeNet = LeNet { image: [1, 28, 28], classes: 10 };

    /// Logits [n, classes] of the input.
    fn logits(&self, g: &mut Graph, batch: usize) -> Result<ValueId> {
        if self.image[1].min(self.image[2]) < 12 {
            let message = format!("{:?}: lenet takes 12×12 pixels or more", self.image);
            return Err(Error::Setting { name: "image", message });
        }
        let mut x = images(g, batch, self.image, self.image[0])?;
        for (name, channels, padding) in [("conv1", 6, 2), ("conv2", 16, 0)] {
            let c = Convolution::new(2).padding(&[padding; 2]);
            x = nn::conv(g, name, x, channels, &[5, 5], &c)?;
            x = g.relu(x)?;
            x = g.max_pool(x, &Pool::new(&[2, 2]))?;
        }
        x = g.flatten(x, 1)?;
        for (name, width) in [("fc1", 120), ("fc2", 84)] {
            x = nn::linear(g, name, x, width)?;
            x = g.relu(x)?;
        }
        nn::linear(g, "fc3", x, self.classes)
    }
}

impl Model for LeNet {
    fn name(&self) -> &str {
        "lenet"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let logits = self.logits(g, batch)?;
        class_loss(g, logits)
    }

    fn predict(&self, g: &mut Graph, batch: usize) -> Result<Option<ValueId>> {
        self.logits(g, batch).map(Some)
    }
}
