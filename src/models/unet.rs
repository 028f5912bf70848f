//! U-shaped networks for segmentation: O. Ronneberger, P. Fischer, T. Brox,
//! "U-Net", 2015, padded and with batch norm as is common today; and Ö. Çiçek
//! et al., "3D U-Net", 2016, here with group norm (Y. Wu, K. He, 2018), since
//! a step sees few volumes.

use super::images::images;
use crate::graph::{Graph, Loss, Model};
use crate::ops::{Convolution, CrossEntropy, Pool, ValueId};
use crate::{DType, Error, Result, nn};

/// How a network of this kind is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Of 2015, with batch norm: enlarging halves the channels.
    Images,
    /// Of 2016, with group norm: on the way down the first convolution of a
    /// level has half of its channels, and enlarging keeps them.
    Volumes,
}

/// Groups of the group norms.
const GROUPS: usize = 8;
/// Added to both sides of the Dice quotient.
const SMOOTHING: f32 = 1.0;

/// A network that gives each pixel or voxel a class. The loss of an item is its
/// mean cross-entropy plus its Dice loss.
///
/// Inputs: `images` u8 [n, C, H, W] and `targets` i32 [n, H, W], or `volumes`
/// f32 [n, C, D, H, W] and `targets` i32 [n, D, H, W].
#[derive(Clone, Debug)]
pub struct Unet {
    /// The name on the command line.
    pub name: &'static str,
    /// For images or for volumes.
    pub style: Style,
    /// Channels of the input.
    pub channels: usize,
    /// Height and width, or depth, height and width; 2^(levels − 1) divides all.
    pub size: Vec<usize>,
    /// Outputs.
    pub classes: usize,
    /// Channels of the first level; each further one has twice as many.
    pub width: usize,
    /// Resolutions, each half of the one before.
    pub levels: usize,
}

impl Unet {
    /// For pictures in two classes: 31,037,698 parameters.
    pub fn images() -> Unet {
        Unet {
            name: "unet",
            style: Style::Images,
            channels: 3,
            size: vec![512, 512],
            classes: 2,
            width: 64,
            levels: 5,
        }
    }

    /// For volumes in two classes, in patches of 64×64×64.
    pub fn volumes() -> Unet {
        Unet {
            name: "unet3d",
            style: Style::Volumes,
            channels: 1,
            size: vec![64, 64, 64],
            levels: 4,
            ..Unet::images()
        }
    }

    /// For tests.
    pub fn tiny() -> Unet {
        Unet { name: "unet-tiny", size: vec![32, 32], width: 8, levels: 3, ..Unet::images() }
    }

    /// For tests and small volumes.
    pub fn volumes_tiny() -> Unet {
        Unet {
            name: "unet3d-tiny",
            size: vec![16, 16, 16],
            width: 16,
            levels: 3,
            ..Unet::volumes()
        }
    }

    /// Two convolutions of kernel 3, each with a norm and ReLU.
    fn convs(&self, g: &mut Graph, mut x: ValueId, widths: [usize; 2]) -> Result<ValueId> {
        let rank = self.size.len();
        let c = Convolution::new(rank).padding(&vec![1; rank]);
        for (i, width) in widths.into_iter().enumerate() {
            let inputs = g.shape(x)[1] * 3usize.pow(rank as u32);
            let start = nn::Start::uniform(inputs).without_bias();
            let (conv, norm) =
                (format!("double_conv.{}", 3 * i), format!("double_conv.{}", 3 * i + 1));
            x = nn::conv_from(g, &conv, x, width, &vec![3; rank], &c, start)?;
            x = match self.style {
                Style::Images => nn::batch_norm(g, &norm, x)?,
                Style::Volumes => nn::group_norm(g, &norm, x, GROUPS, 1e-5)?,
            };
            x = g.relu(x)?;
        }
        Ok(x)
    }

    /// Logits [n, classes, …] of the input.
    fn logits(&self, g: &mut Graph, batch: usize) -> Result<ValueId> {
        let Some(halvings) = self.levels.checked_sub(1) else {
            return Err(Error::Setting { name: "levels", message: "must be at least 1".into() });
        };
        let divisor = 1 << halvings;
        let rank = if self.style == Style::Images { 2 } else { 3 };
        if self.size.len() != rank || self.size.iter().any(|s| s % divisor != 0) {
            let message = format!(
                "{:?}: expected {rank} sizes, each divided by {divisor}, as the input is halved {halvings} times",
                self.size
            );
            return Err(Error::Setting { name: "size", message });
        }
        let mut x = match self.style {
            Style::Images => {
                images(g, batch, [self.channels, self.size[0], self.size[1]], self.channels)?
            }
            Style::Volumes => {
                let mut shape = vec![batch, self.channels];
                shape.extend(&self.size);
                g.input("volumes", &shape, DType::F32)?
            }
        };
        let mut skips = Vec::new();
        for level in 0..self.levels {
            let width = self.width << level;
            let first = if self.style == Style::Images { width } else { width / 2 };
            let name = match level {
                0 => "inc".to_string(),
                _ => format!("down{level}.maxpool_conv.1"),
            };
            if level > 0 {
                skips.push(x);
                x = g.max_pool(x, &Pool::new(&vec![2; rank]))?;
            }
            x = g.scoped(&name, |g| self.convs(g, x, [first, width]))?;
        }
        for (i, skip) in skips.into_iter().rev().enumerate() {
            let width = g.shape(skip)[1];
            x = g.scoped(&format!("up{}", i + 1), |g| {
                let (channels, images) = (g.shape(x)[1], self.style == Style::Images);
                let outputs = if images { channels / 2 } else { channels };
                let x = nn::conv_up(g, "up", x, outputs, 2, images)?;
                let x = g.concat(&[skip, x], 1)?;
                g.scoped("conv", |g| self.convs(g, x, [width, width]))
            })?;
        }
        let c = Convolution::new(rank);
        nn::conv(g, "outc.conv", x, self.classes, &vec![1; rank], &c)
    }
}

impl Model for Unet {
    fn name(&self) -> &str {
        self.name
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let logits = self.logits(g, batch)?;
        let mut shape = vec![batch];
        shape.extend(&self.size);
        let targets = g.input("targets", &shape, DType::I32)?;
        let positions: usize = self.size.iter().product();
        let probabilities = g.softmax(logits, 1)?;
        let hot = g.one_hot(targets, self.classes)?;
        let dice = g.dice_loss(probabilities, hot, SMOOTHING)?;
        let rows = g.reshape(logits, &[batch, self.classes, positions])?;
        let rows = g.transpose(rows, 1, 2)?;
        let rows = g.reshape(rows, &[batch * positions, self.classes])?;
        let targets = g.reshape(targets, &[batch * positions])?;
        let entropy = g.cross_entropy(rows, targets, CrossEntropy::default())?;
        let mut mean = |x: ValueId| {
            let x = g.reshape(x, &[batch, positions])?;
            g.mean(x, &[1])
        };
        let correct = entropy.correct.map(&mut mean).transpose()?;
        let entropy = mean(entropy.per_item)?;
        let per_item = g.add(entropy, dice.per_item)?;
        Ok(Loss { per_item, weight: dice.weight, correct })
    }

    /// Probabilities [n, classes, …].
    fn predict(&self, g: &mut Graph, batch: usize) -> Result<Option<ValueId>> {
        let logits = self.logits(g, batch)?;
        g.softmax(logits, 1).map(Some)
    }
}
