//! The vision transformer: A. Dosovitskiy et al., "An image is worth 16×16
//! words", 2020, with torchvision's names and its start of the weights.

use super::images::{class_loss, images, model_channels};
use super::text::check_heads;
use crate::graph::{Graph, Init, Loss, Model};
use crate::ops::{Attention, Convolution, ValueId};
use crate::{Error, Result, nn};

/// ε of the layer norms.
const EPSILON: f32 = 1e-6;

/// A vision transformer.
///
/// Inputs: `images` u8 [n, C, H, W], `labels` i32 `[n]`.
#[derive(Clone, Debug)]
pub struct Vit {
    /// The name on the command line.
    pub name: &'static str,
    /// Channels, height and width; a grey image gives all three channels.
    pub image: [usize; 3],
    /// Outputs.
    pub classes: usize,
    /// Pixels along each side of a patch.
    pub patch: usize,
    /// Layers.
    pub layers: usize,
    /// Width of a token.
    pub width: usize,
    /// Heads, which divide the width.
    pub heads: usize,
}

impl Vit {
    /// 86,567,656 parameters.
    pub const B16: Vit = Vit {
        name: "vit-b16",
        image: [3, 224, 224],
        classes: 1000,
        patch: 16,
        layers: 12,
        width: 768,
        heads: 12,
    };

    /// For tests and images of 28×28.
    pub const TINY: Vit = Vit {
        name: "vit-tiny",
        image: [1, 28, 28],
        classes: 10,
        patch: 7,
        layers: 2,
        width: 32,
        heads: 2,
    };

    fn layer(&self, g: &mut Graph, x: ValueId) -> Result<ValueId> {
        let width = self.width;
        let y = nn::layer_norm(g, "ln_1", x, EPSILON)?;
        let y = g.scoped("self_attention", |g| {
            // In PyTorch one matrix whose name is not that of a layer.
            let bound = (6.0 / (4 * width) as f32).sqrt();
            let weight =
                g.parameter("in_proj_weight", &[3 * width, width], Init::Uniform(bound))?;
            let bias = g.parameter("in_proj_bias", &[3 * width], Init::Zeros)?;
            let qkv = g.matmul(y, weight, false, true)?;
            let qkv = g.add(qkv, bias)?;
            let y = nn::packed_attention(g, qkv, self.heads, Attention::new(width / self.heads))?;
            nn::linear_from(g, "out_proj", y, width, nn::Start::uniform(width).bias(Init::Zeros))
        })?;
        let x = g.add(x, y)?;
        let y = nn::layer_norm(g, "ln_2", x, EPSILON)?;
        let start = nn::Start::xavier(width, 4 * width).bias(Init::Normal(1e-6));
        let y = nn::linear_from(g, "mlp.0", y, 4 * width, start.clone())?;
        let y = g.gelu(y)?;
        let y = nn::linear_from(g, "mlp.3", y, width, start)?;
        g.add(x, y)
    }

    /// Logits [n, classes] of the input.
    fn logits(&self, g: &mut Graph, batch: usize) -> Result<ValueId> {
        let Vit { image, patch, width, heads, .. } = *self;
        if patch == 0 || image[1] % patch != 0 || image[2] % patch != 0 {
            let message = format!("{image:?} is not divided by patches of {patch}×{patch}");
            return Err(Error::Setting { name: "image", message });
        }
        check_heads(width, heads)?;
        let x = images(g, batch, image, model_channels(image))?;
        let inputs = g.shape(x)[1] * patch * patch;
        let start = nn::Start::normal((1.0 / inputs as f32).sqrt());
        let c = Convolution::new(2).stride(&[patch; 2]);
        let x = nn::conv_from(g, "conv_proj", x, width, &[patch; 2], &c, start)?;
        let x = g.flatten(x, 2)?;
        let x = g.transpose(x, 1, 2)?;
        let tokens = g.shape(x)[1] + 1;
        let class = g.parameter("class_token", &[1, 1, width], Init::Zeros)?;
        let class = g.expand(class, &[batch, 1, width])?;
        let x = g.concat(&[class, x], 1)?;
        let x = g.scoped("encoder", |g| {
            let place = g.parameter("pos_embedding", &[1, tokens, width], Init::Normal(0.02))?;
            let mut x = g.add(x, place)?;
            for i in 0..self.layers {
                x = g.scoped(&format!("layers.encoder_layer_{i}"), |g| self.layer(g, x))?;
            }
            // Of the class token alone: the others are not used.
            x = g.slice(x, &[0, 0, 0], &[batch, 1, width])?;
            nn::layer_norm(g, "ln", x, EPSILON)
        })?;
        let x = g.reshape(x, &[batch, width])?;
        let start = nn::Start { weight: Init::Zeros, bias: Some(Init::Zeros) };
        nn::linear_from(g, "heads.head", x, self.classes, start)
    }
}

impl Model for Vit {
    fn name(&self) -> &str {
        self.name
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let logits = self.logits(g, batch)?;
        class_loss(g, logits)
    }

    fn predict(&self, g: &mut Graph, batch: usize) -> Result<Option<ValueId>> {
        self.logits(g, batch).map(Some)
    }
}
