//! Layers with PyTorch's default initialisation and parameter names.
//!
//! A layer creates its parameters under its name in the current scope:
//! `weight`, and `bias` where it has one.

use crate::error::{Error, Result};
use crate::graph::{Affine, Graph, Init, Running};
use crate::ops::{Attention, Convolution, ValueId};

/// How the parameters of a layer start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The weight.
    pub weight: Init,
    /// The bias, or that there is none.
    pub bias: Option<Init>,
}

impl Start {
    /// Uniform in ±1/√inputs, with a bias: what `torch.nn.Linear` and the
    /// convolutions do.
    pub fn uniform(inputs: usize) -> Start {
        let init = Init::Uniform(1.0 / (inputs.max(1) as f32).sqrt());
        Start { weight: init.clone(), bias: Some(init) }
    }

    /// Normal with this standard deviation, bias 0.
    pub fn normal(deviation: f32) -> Start {
        Start { weight: Init::Normal(deviation), bias: Some(Init::Zeros) }
    }

    /// Uniform in ±√(6 / (inputs + outputs)), bias 0: X. Glorot, Y. Bengio,
    /// "Understanding the difficulty of training deep feedforward neural
    /// networks", 2010.
    pub fn xavier(inputs: usize, outputs: usize) -> Start {
        let bound = (6.0 / (inputs + outputs).max(1) as f32).sqrt();
        Start { weight: Init::Uniform(bound), bias: Some(Init::Zeros) }
    }

    /// The same with another start of the bias.
    pub fn bias(mut self, init: Init) -> Start {
        self.bias = Some(init);
        self
    }

    /// The same without a bias.
    pub fn without_bias(mut self) -> Start {
        self.bias = None;
        self
    }
}

/// y = x·Wᵀ + b with W [outputs, inputs], as PyTorch starts it.
pub fn linear(g: &mut Graph, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    let inputs = g.shape(x).last().copied().unwrap_or(1);
    linear_from(g, name, x, outputs, Start::uniform(inputs))
}

/// [`linear`] with another start.
pub fn linear_from(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    start: Start,
) -> Result<ValueId> {
    let inputs = g.shape(x).last().copied().unwrap_or(1);
    g.scoped(name, |g| {
        let weight = g.parameter("weight", &[outputs, inputs], start.weight)?;
        let y = g.matmul(x, weight, false, true)?;
        let Some(init) = start.bias else { return Ok(y) };
        let bias = g.parameter("bias", &[outputs], init)?;
        g.add(y, bias)
    })
}

/// A convolution of x [N, C, …] to `outputs` channels, as PyTorch starts it,
/// with a bias.
pub fn conv(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: &[usize],
    c: &Convolution,
) -> Result<ValueId> {
    let inputs = channels(g, x) / c.groups.max(1) * kernel.iter().product::<usize>();
    conv_from(g, name, x, outputs, kernel, c, Start::uniform(inputs))
}

/// [`conv`] with another start.
pub fn conv_from(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: &[usize],
    c: &Convolution,
    start: Start,
) -> Result<ValueId> {
    let mut shape = vec![outputs, channels(g, x) / c.groups.max(1)];
    shape.extend(kernel);
    g.scoped(name, |g| {
        let weight = g.parameter("weight", &shape, start.weight)?;
        let y = g.conv(x, weight, c)?;
        channel_bias(g, y, outputs, start.bias)
    })
}

/// A transposed convolution of x [N, C, …] that enlarges every dimension by
/// `factor` with a kernel of that size, as PyTorch starts it.
pub fn conv_up(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    outputs: usize,
    factor: usize,
    bias: bool,
) -> Result<ValueId> {
    let rank = g.shape(x).len().saturating_sub(2);
    let kernel = vec![factor; rank];
    let start = Start::uniform(outputs * kernel.iter().product::<usize>());
    let mut shape = vec![channels(g, x), outputs];
    shape.extend(&kernel);
    g.scoped(name, |g| {
        let weight = g.parameter("weight", &shape, start.weight)?;
        let c = Convolution::new(rank).stride(&kernel);
        let y = g.conv_transpose(x, weight, &c, &vec![0; rank])?;
        channel_bias(g, y, outputs, start.bias.filter(|_| bias))
    })
}

fn channels(g: &Graph, x: ValueId) -> usize {
    g.shape(x).get(1).copied().unwrap_or(1)
}

fn channel_bias(g: &mut Graph, y: ValueId, outputs: usize, init: Option<Init>) -> Result<ValueId> {
    let Some(init) = init else { return Ok(y) };
    let bias = g.parameter("bias", &[outputs], init)?;
    let mut shape = vec![1; g.shape(y).len() - 1];
    shape[0] = outputs;
    let bias = g.reshape(bias, &shape)?;
    g.add(y, bias)
}

/// Weight 1 and bias 0 in the current scope.
fn affine(g: &mut Graph, size: usize) -> Result<Affine> {
    Ok(Affine {
        weight: Some(g.parameter("weight", &[size], Init::Constant(1.0))?),
        bias: Some(g.parameter("bias", &[size], Init::Zeros)?),
    })
}

/// Layer norm over the last dimension with weight and bias.
pub fn layer_norm(g: &mut Graph, name: &str, x: ValueId, epsilon: f32) -> Result<ValueId> {
    let width = g.shape(x).last().copied().unwrap_or(1);
    g.scoped(name, |g| {
        let affine = affine(g, width)?;
        g.layer_norm(x, affine, epsilon)
    })
}

/// RMS norm over the last dimension with a weight.
pub fn rms_norm(g: &mut Graph, name: &str, x: ValueId, epsilon: f32) -> Result<ValueId> {
    let width = g.shape(x).last().copied().unwrap_or(1);
    g.scoped(name, |g| {
        let weight = g.parameter("weight", &[width], Init::Constant(1.0))?;
        g.rms_norm(x, Affine { weight: Some(weight), bias: None }, epsilon)
    })
}

/// Group norm of x [N, C, …] with weight and bias.
pub fn group_norm(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    groups: usize,
    epsilon: f32,
) -> Result<ValueId> {
    let size = channels(g, x);
    g.scoped(name, |g| {
        let affine = affine(g, size)?;
        g.group_norm(x, groups, affine, epsilon)
    })
}

/// Batch norm of x [N, C, …] with weight, bias and running statistics
/// (`running_mean`, `running_var`), momentum 0.1 and ε = 10⁻⁵.
pub fn batch_norm(g: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
    let size = channels(g, x);
    g.scoped(name, |g| {
        let affine = affine(g, size)?;
        let running = Running {
            mean: g.state("running_mean", &[size], Init::Zeros)?,
            variance: g.state("running_var", &[size], Init::Constant(1.0))?,
            momentum: 0.1,
        };
        g.batch_norm(x, affine, running, 1e-5)
    })
}

/// A table of `rows` vectors of `width`, the parameter `weight` of the layer.
pub fn embedding_table(
    g: &mut Graph,
    name: &str,
    rows: usize,
    width: usize,
    init: Init,
) -> Result<ValueId> {
    g.scoped(name, |g| g.parameter("weight", &[rows, width], init))
}

/// x [B, L, heads·D] as [B, L, heads, D].
pub fn split_heads(g: &mut Graph, x: ValueId, heads: usize) -> Result<ValueId> {
    match *g.shape(x) {
        [batch, length, width] if heads > 0 && width % heads == 0 => {
            g.reshape(x, &[batch, length, heads, width / heads])
        }
        ref shape => {
            let message = format!("shape {shape:?} for {heads} heads: expected [B, L, heads·D]");
            Err(Error::shape(g.scoped_name("split_heads"), message))
        }
    }
}

/// x [B, L, heads, D] as [B, L, heads·D].
pub fn join_heads(g: &mut Graph, x: ValueId) -> Result<ValueId> {
    g.flatten(x, 2)
}

/// Attention of one tensor of queries, keys and values [B, L, 3·width] over
/// itself: [B, L, width].
pub fn packed_attention(
    g: &mut Graph,
    qkv: ValueId,
    heads: usize,
    attention: Attention,
) -> Result<ValueId> {
    let parts = g.chunk(qkv, 3, 2)?;
    let mut split = |i: usize| split_heads(g, parts[i], heads);
    let (q, k, v) = (split(0)?, split(1)?, split(2)?);
    let y = g.attention(q, k, v, None, attention)?;
    join_heads(g, y)
}
