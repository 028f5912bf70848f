//! Decoders of the Llama family: H. Touvron et al., "LLaMA", 2023, with
//! grouped queries, RMS norm, rotary positions and SwiGLU, and the names of
//! the published weights.

use super::text::{check_heads, token_loss, tokens};
use crate::graph::{Graph, Init, Loss, Model};
use crate::ops::{Attention, Rope, ValueId};
use crate::{Error, Result, nn};

/// A decoder without biases.
///
/// Inputs: `tokens` and `targets` i32 [n, length]; a target of −100 does not
/// count.
#[derive(Clone, Debug)]
pub struct Llama {
    /// The name on the command line.
    pub name: &'static str,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Tokens of an item.
    pub length: usize,
    /// Layers.
    pub layers: usize,
    /// Width of a token.
    pub width: usize,
    /// Width between the two products of a feed-forward part.
    pub inner: usize,
    /// Heads of the queries, which divide the width.
    pub heads: usize,
    /// Heads of keys and values, which divide those of the queries.
    pub key_heads: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// ε of the norms.
    pub epsilon: f32,
}

impl Llama {
    /// TinyLlama (P. Zhang et al., 2024): 1,100,048,384 parameters.
    pub const B1: Llama = Llama {
        name: "llama-1.1b",
        vocabulary: 32_000,
        length: 2048,
        layers: 22,
        width: 2048,
        inner: 5632,
        heads: 32,
        key_heads: 4,
        rope_base: 10_000.0,
        epsilon: 1e-5,
    };

    /// For text as bytes.
    pub const TINY: Llama = Llama {
        name: "llama-tiny",
        vocabulary: 256,
        length: 64,
        layers: 2,
        width: 64,
        inner: 176,
        heads: 4,
        key_heads: 2,
        ..Llama::B1
    };

    fn layer(&self, g: &mut Graph, x: ValueId) -> Result<ValueId> {
        let head = self.width / self.heads;
        let y = nn::rms_norm(g, "input_layernorm", x, self.epsilon)?;
        let y = g.scoped("self_attn", |g| {
            let q = plain(g, "q_proj", y, self.width)?;
            let k = plain(g, "k_proj", y, head * self.key_heads)?;
            let v = plain(g, "v_proj", y, head * self.key_heads)?;
            let q = nn::split_heads(g, q, self.heads)?;
            let k = nn::split_heads(g, k, self.key_heads)?;
            let v = nn::split_heads(g, v, self.key_heads)?;
            let q = g.rope(q, Rope::new(self.rope_base))?;
            let k = g.rope(k, Rope::new(self.rope_base))?;
            let y = g.attention(q, k, v, None, Attention::new(head).causal())?;
            let y = nn::join_heads(g, y)?;
            plain(g, "o_proj", y, self.width)
        })?;
        let x = g.add(x, y)?;
        let y = nn::rms_norm(g, "post_attention_layernorm", x, self.epsilon)?;
        let y = g.scoped("mlp", |g| {
            let gate = plain(g, "gate_proj", y, self.inner)?;
            let up = plain(g, "up_proj", y, self.inner)?;
            let y = g.map(&[gate, up], |x| x[0].silu() * &x[1])?;
            plain(g, "down_proj", y, self.width)
        })?;
        g.add(x, y)
    }

    /// The last hidden state [n, length, width], and the output layer's table.
    fn hidden(&self, g: &mut Graph, batch: usize) -> Result<(ValueId, ValueId)> {
        check_heads(self.width, self.heads)?;
        if self.key_heads == 0 || !self.heads.is_multiple_of(self.key_heads) {
            let message = format!("{} heads for {} queries' heads", self.key_heads, self.heads);
            return Err(Error::Setting { name: "key_heads", message });
        }
        let tokens = tokens(g, batch, self.length)?;
        let (vocabulary, width, normal) = (self.vocabulary, self.width, Init::Normal(0.02));
        let hidden = g.scoped("model", |g| {
            let table = nn::embedding_table(g, "embed_tokens", vocabulary, width, normal.clone())?;
            let mut x = g.embedding(table, tokens)?;
            for i in 0..self.layers {
                x = g.scoped(&format!("layers.{i}"), |g| self.layer(g, x))?;
            }
            nn::rms_norm(g, "norm", x, self.epsilon)
        })?;
        let head = nn::embedding_table(g, "lm_head", vocabulary, width, normal)?;
        Ok((hidden, head))
    }
}

fn plain(g: &mut Graph, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    nn::linear_from(g, name, x, outputs, nn::Start::normal(0.02).without_bias())
}

impl Model for Llama {
    fn name(&self) -> &str {
        self.name
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let (hidden, table) = self.hidden(g, batch)?;
        token_loss(g, hidden, table, None)
    }

    /// Logits [n, length, vocabulary] of the next token.
    fn predict(&self, g: &mut Graph, batch: usize) -> Result<Option<ValueId>> {
        let (hidden, table) = self.hidden(g, batch)?;
        g.matmul(hidden, table, false, true).map(Some)
    }
}
