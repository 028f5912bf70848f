//! Residual networks: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning
//! for image recognition", 2015, with torchvision's names, its start of the
//! weights and its stride in the bottleneck's 3×3 convolution.

use super::images::{class_loss, images, model_channels};
use crate::graph::{Graph, Init, Loss, Model};
use crate::ops::{Convolution, Pool, ValueId};
use crate::{Result, nn};

/// What a stage repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Two convolutions of 3×3.
    Basic,
    /// 1×1, 3×3 and 1×1, which gives four times the width.
    Bottleneck,
}

/// A residual network.
///
/// Inputs: `images` u8 [n, C, H, W], `labels` i32 `[n]`.
#[derive(Clone, Debug)]
pub struct ResNet {
    /// The name on the command line.
    pub name: &'static str,
    /// Channels, height and width; a grey image gives all three channels.
    pub image: [usize; 3],
    /// Outputs.
    pub classes: usize,
    /// What a stage repeats.
    pub block: Block,
    /// Blocks of each stage; each stage but the first halves the image.
    pub blocks: Vec<usize>,
    /// Channels of the first stage's blocks; each further stage doubles them.
    pub width: usize,
    /// Whether the image is quartered first, by a 7×7 convolution and a pool;
    /// else a 3×3 convolution of stride 2 halves it.
    pub large_images: bool,
}

impl ResNet {
    /// 11,689,512 parameters.
    pub fn resnet18() -> ResNet {
        ResNet {
            name: "resnet18",
            image: [3, 224, 224],
            classes: 1000,
            block: Block::Basic,
            blocks: vec![2, 2, 2, 2],
            width: 64,
            large_images: true,
        }
    }

    /// 25,557,032 parameters.
    pub fn resnet50() -> ResNet {
        let name = "resnet50";
        ResNet { name, block: Block::Bottleneck, blocks: vec![3, 4, 6, 3], ..ResNet::resnet18() }
    }

    /// For tests and images of 28×28.
    pub fn tiny() -> ResNet {
        ResNet {
            name: "resnet-tiny",
            image: [1, 28, 28],
            classes: 10,
            block: Block::Basic,
            blocks: vec![1, 1, 1],
            width: 16,
            large_images: false,
        }
    }

    fn block(&self, g: &mut Graph, x: ValueId, width: usize, stride: usize) -> Result<ValueId> {
        // Each convolution's kernel size, outputs and stride.
        let convs = match self.block {
            Block::Basic => vec![(3, width, stride), (3, width, 1)],
            Block::Bottleneck => vec![(1, width, 1), (3, width, stride), (1, 4 * width, 1)],
        };
        let (last, outputs) = (convs.len(), convs[convs.len() - 1].1);
        let mut y = x;
        for (i, (kernel, outputs, stride)) in convs.into_iter().enumerate() {
            y = conv(g, &format!("conv{}", i + 1), y, outputs, kernel, stride)?;
            y = nn::batch_norm(g, &format!("bn{}", i + 1), y)?;
            if i + 1 < last {
                y = g.relu(y)?;
            }
        }
        let mut shortcut = x;
        if stride != 1 || g.shape(x)[1] != outputs {
            shortcut = g.scoped("downsample", |g| {
                let z = conv(g, "0", x, outputs, 1, stride)?;
                nn::batch_norm(g, "1", z)
            })?;
        }
        let y = g.add(y, shortcut)?;
        g.relu(y)
    }

    /// Logits [n, classes] of the input.
    fn logits(&self, g: &mut Graph, batch: usize) -> Result<ValueId> {
        let mut x = images(g, batch, self.image, model_channels(self.image))?;
        let kernel = if self.large_images { 7 } else { 3 };
        x = conv(g, "conv1", x, self.width, kernel, 2)?;
        x = nn::batch_norm(g, "bn1", x)?;
        x = g.relu(x)?;
        if self.large_images {
            x = g.max_pool(x, &Pool::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))?;
        }
        for (stage, blocks) in self.blocks.iter().enumerate() {
            for i in 0..*blocks {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                x = g.scoped(&format!("layer{}.{i}", stage + 1), |g| {
                    self.block(g, x, self.width << stage, stride)
                })?;
            }
        }
        x = g.global_avg_pool(x)?;
        nn::linear(g, "fc", x, self.classes)
    }
}

/// Without bias, padded to keep the size at stride 1. Weights start normal by
/// the outputs: K. He et al., "Delving deep into rectifiers", 2015.
fn conv(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: usize,
    stride: usize,
) -> Result<ValueId> {
    let deviation = (2.0 / (outputs * kernel * kernel) as f32).sqrt();
    let start = nn::Start { weight: Init::Normal(deviation), bias: None };
    let c = Convolution::new(2).stride(&[stride; 2]).padding(&[kernel / 2; 2]);
    nn::conv_from(g, name, x, outputs, &[kernel; 2], &c, start)
}

impl Model for ResNet {
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
