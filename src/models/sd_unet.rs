//! The denoiser of Stable Diffusion 1.x: R. Rombach et al., "High-resolution
//! image synthesis with latent diffusion models", 2021, trained to find the
//! noise (J. Ho, A. Jain, P. Abbeel, "Denoising diffusion probabilistic
//! models", 2020). Names are those of the weights published for diffusers.

use super::text::check_heads;
use crate::expression::{E, Scalar};
use crate::graph::{Graph, Init, Leaf, Loss, Model};
use crate::ledger::Class;
use crate::ops::{Attention, Convolution, TensorType, UpsampleMode, ValueId};
use crate::{DType, Error, Result, nn};

/// Steps from an image to noise.
pub const TIMESTEPS: usize = 1000;
/// Variances of the first and the last of these steps; their roots are evenly
/// spaced between.
const VARIANCES: (f64, f64) = (0.000_85, 0.012);

/// A denoiser of latent images under a text.
///
/// Inputs: `latents` and `noise` f32 [n, C, H, W], `timesteps` i32 `[n]` below
/// 1000, `context` f32 [n, words, width of the text's encoder].
#[derive(Clone, Debug)]
pub struct SdUnet {
    /// The name on the command line.
    pub name: &'static str,
    /// Channels, height and width.
    pub latent: [usize; 3],
    /// Channels of each level; every level but the first halves the size, every
    /// one but the last attends to the text.
    pub widths: Vec<usize>,
    /// Blocks of a level on the way down; one more on the way up.
    pub blocks: usize,
    /// Heads, which divide the widths.
    pub heads: usize,
    /// Words of the text and width of its encoder.
    pub context: [usize; 2],
    /// Groups of the group norms.
    pub groups: usize,
}

impl SdUnet {
    /// 859,520,964 parameters.
    pub fn v1() -> SdUnet {
        SdUnet {
            name: "sd-unet",
            latent: [4, 64, 64],
            widths: vec![320, 640, 1280, 1280],
            blocks: 2,
            heads: 8,
            context: [77, 768],
            groups: 32,
        }
    }

    /// For tests.
    pub fn tiny() -> SdUnet {
        SdUnet {
            name: "sd-unet-tiny",
            latent: [4, 16, 16],
            widths: vec![16, 32],
            blocks: 1,
            heads: 2,
            context: [7, 24],
            groups: 8,
        }
    }

    /// Two convolutions, between which the time is added.
    fn resnet(&self, g: &mut Graph, x: ValueId, time: ValueId, outputs: usize) -> Result<ValueId> {
        let (batch, inputs) = (g.shape(x)[0], g.shape(x)[1]);
        let y = nn::group_norm(g, "norm1", x, self.groups, 1e-5)?;
        let y = g.silu(y)?;
        let y = conv(g, "conv1", y, outputs, 3, 1)?;
        let t = g.silu(time)?;
        let t = nn::linear(g, "time_emb_proj", t, outputs)?;
        let t = g.reshape(t, &[batch, outputs, 1, 1])?;
        let y = g.add(y, t)?;
        let y = nn::group_norm(g, "norm2", y, self.groups, 1e-5)?;
        let y = g.silu(y)?;
        let y = conv(g, "conv2", y, outputs, 3, 1)?;
        let x = if inputs == outputs { x } else { conv(g, "conv_shortcut", x, outputs, 1, 1)? };
        g.add(x, y)
    }

    /// Attention of x over `context`, which is x itself or the text.
    fn attend(&self, g: &mut Graph, x: ValueId, context: ValueId) -> Result<ValueId> {
        let width = g.shape(x)[2];
        let mut project = |name: &str, from: ValueId| {
            let inputs = g.shape(from)[2];
            let start = nn::Start::uniform(inputs).without_bias();
            let y = nn::linear_from(g, name, from, width, start)?;
            nn::split_heads(g, y, self.heads)
        };
        let (q, k, v) = (project("to_q", x)?, project("to_k", context)?, project("to_v", context)?);
        let y = g.attention(q, k, v, None, Attention::new(width / self.heads))?;
        let y = nn::join_heads(g, y)?;
        nn::linear(g, "to_out.0", y, width)
    }

    /// A transformer's layer over the pixels of x.
    fn transformer(&self, g: &mut Graph, x: ValueId, context: ValueId) -> Result<ValueId> {
        let shape = g.shape(x).to_vec();
        let (batch, width, pixels) = (shape[0], shape[1], shape[2] * shape[3]);
        let y = nn::group_norm(g, "norm", x, self.groups, 1e-6)?;
        let y = conv(g, "proj_in", y, width, 1, 1)?;
        let y = g.reshape(y, &[batch, width, pixels])?;
        let y = g.transpose(y, 1, 2)?;
        let y = g.scoped("transformer_blocks.0", |g| {
            let z = nn::layer_norm(g, "norm1", y, 1e-5)?;
            let z = g.scoped("attn1", |g| self.attend(g, z, z))?;
            let y = g.add(y, z)?;
            let z = nn::layer_norm(g, "norm2", y, 1e-5)?;
            let z = g.scoped("attn2", |g| self.attend(g, z, context))?;
            let y = g.add(y, z)?;
            let z = nn::layer_norm(g, "norm3", y, 1e-5)?;
            let z = nn::linear(g, "ff.net.0.proj", z, 8 * width)?;
            let halves = g.chunk(z, 2, 2)?;
            let z = g.map(&halves, |x| &x[0] * x[1].gelu())?;
            let z = nn::linear(g, "ff.net.2", z, width)?;
            g.add(y, z)
        })?;
        let y = g.transpose(y, 1, 2)?;
        let y = g.reshape(y, &shape)?;
        let y = conv(g, "proj_out", y, width, 1, 1)?;
        g.add(x, y)
    }

    /// A resnet and, where there is a context, a transformer; both numbered.
    fn block(
        &self,
        g: &mut Graph,
        x: ValueId,
        time: ValueId,
        outputs: usize,
        number: usize,
        context: Option<ValueId>,
    ) -> Result<ValueId> {
        let x = g.scoped(&format!("resnets.{number}"), |g| self.resnet(g, x, time, outputs))?;
        let Some(context) = context else { return Ok(x) };
        g.scoped(&format!("attentions.{number}"), |g| self.transformer(g, x, context))
    }

    /// The noise in x [n, C, H, W].
    fn denoise(
        &self,
        g: &mut Graph,
        x: ValueId,
        timesteps: ValueId,
        context: ValueId,
    ) -> Result<ValueId> {
        let (base, levels) = (self.widths[0], self.widths.len());
        let time = sinusoids(g, timesteps, base)?;
        let time = g.scoped("time_embedding", |g| {
            let y = nn::linear(g, "linear_1", time, 4 * base)?;
            let y = g.silu(y)?;
            nn::linear(g, "linear_2", y, 4 * base)
        })?;
        let attends = |level: usize| (level + 1 < levels).then_some(context);
        let mut x = conv(g, "conv_in", x, base, 3, 1)?;
        let mut skips = vec![x];
        for (level, width) in self.widths.iter().enumerate() {
            g.scoped(&format!("down_blocks.{level}"), |g| -> Result<()> {
                for i in 0..self.blocks {
                    x = self.block(g, x, time, *width, i, attends(level))?;
                    skips.push(x);
                }
                if level + 1 < levels {
                    x = conv(g, "downsamplers.0.conv", x, *width, 3, 2)?;
                    skips.push(x);
                }
                Ok(())
            })?;
        }
        let width = self.widths[levels - 1];
        x = g.scoped("mid_block", |g| {
            let x = self.block(g, x, time, width, 0, Some(context))?;
            self.block(g, x, time, width, 1, None)
        })?;
        for (i, level) in (0..levels).rev().enumerate() {
            g.scoped(&format!("up_blocks.{i}"), |g| -> Result<()> {
                for block in 0..=self.blocks {
                    // As many were pushed as are popped here.
                    if let Some(skip) = skips.pop() {
                        x = g.concat(&[x, skip], 1)?;
                    }
                    x = self.block(g, x, time, self.widths[level], block, attends(level))?;
                }
                if level > 0 {
                    x = g.upsample(x, &[2, 2], UpsampleMode::Nearest)?;
                    x = conv(g, "upsamplers.0.conv", x, self.widths[level], 3, 1)?;
                }
                Ok(())
            })?;
        }
        let x = nn::group_norm(g, "conv_norm_out", x, self.groups, 1e-5)?;
        let x = g.silu(x)?;
        conv(g, "conv_out", x, self.latent[0], 3, 1)
    }
}

fn conv(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: usize,
    stride: usize,
) -> Result<ValueId> {
    let c = Convolution::new(2).stride(&[stride; 2]).padding(&[kernel / 2; 2]);
    nn::conv(g, name, x, outputs, &[kernel; 2], &c)
}

/// Cosines and sines of timestep · 10,000^(−i / half), [n, width].
///
/// The angle is kept in units of 2⁻³² turns, in which it wraps by itself, since
/// the sine of a large f32 is not defined to any precision on a GPU.
fn sinusoids(g: &mut Graph, timesteps: ValueId, width: usize) -> Result<ValueId> {
    let half = width / 2;
    let turns = |i: usize| {
        let frequency = 10_000f64.powf(-(i as f64) / half as f64);
        (frequency / std::f64::consts::TAU * 2f64.powi(32)).round() as u32
    };
    let init = Init::Words((0..half).map(turns).collect());
    let tensor = TensorType::new([half], DType::U32);
    let name = format!("plimsoll.timestep_frequencies.{half}");
    let frequencies = g.leaf(&name, tensor, Leaf::State(init, Class::State))?;
    let batch = g.shape(timesteps)[0];
    let timesteps = g.reshape(timesteps, &[batch, 1])?;
    let parts = g.map_many(&[timesteps, frequencies], |x| {
        // Half a turn less, for which both functions change their signs.
        let angle = (x[0].cast(Scalar::U32) * &x[1]).cast(Scalar::F32)
            * (std::f64::consts::TAU / 2f64.powi(32)) as f32
            - std::f32::consts::PI;
        vec![angle.cos() * -1.0, angle.sin() * -1.0]
    })?;
    g.concat(&parts, 1)
}

/// √ᾱ and √(1 − ᾱ) after each timestep: what is left of the image and what
/// there is of noise.
fn schedule(g: &mut Graph) -> Result<ValueId> {
    let (first, last) = (VARIANCES.0.sqrt(), VARIANCES.1.sqrt());
    let mut left = 1.0f64;
    let mut words = Vec::with_capacity(2 * TIMESTEPS);
    for t in 0..TIMESTEPS {
        let root = first + (last - first) * t as f64 / (TIMESTEPS - 1) as f64;
        left *= 1.0 - root * root;
        words.extend([left.sqrt(), (1.0 - left).sqrt()].map(|x| (x as f32).to_bits()));
    }
    let tensor = TensorType::f32([TIMESTEPS, 2]);
    g.leaf("plimsoll.noise_schedule", tensor, Leaf::State(Init::Words(words), Class::State))
}

impl Model for SdUnet {
    fn name(&self) -> &str {
        self.name
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let [channels, height, width] = self.latent;
        let divisor = 1 << self.widths.len().saturating_sub(1);
        if self.widths.is_empty() || height % divisor != 0 || width % divisor != 0 {
            let message = format!(
                "latents of {height}×{width} for {} levels: {divisor} must divide both",
                self.widths.len()
            );
            return Err(Error::Setting { name: "image", message });
        }
        self.widths.iter().try_for_each(|w| check_heads(*w, self.heads))?;
        let shape = [batch, channels, height, width];
        let latents = g.input("latents", &shape, DType::F32)?;
        let noise = g.input("noise", &shape, DType::F32)?;
        let timesteps = g.input("timesteps", &[batch], DType::I32)?;
        let context = g.input("context", &[batch, self.context[0], self.context[1]], DType::F32)?;
        let schedule = schedule(g)?;
        let shares = g.embedding(schedule, timesteps)?;
        let shares = g.split(shares, 1, &[1, 1])?;
        let image = g.reshape(shares[0], &[batch, 1, 1, 1])?;
        let noisy = g.reshape(shares[1], &[batch, 1, 1, 1])?;
        let x = g.map(&[latents, noise, image, noisy], |x: &[E]| &x[0] * &x[2] + &x[1] * &x[3])?;
        let found = self.denoise(g, x, timesteps, context)?;
        g.mean_squared_error(found, noise)
    }
}
