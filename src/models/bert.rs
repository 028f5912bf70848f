//! BERT: J. Devlin, M. Chang, K. Lee, K. Toutanova, "BERT", 2018; and ALBERT,
//! whose layers share their weights: Z. Lan et al., "ALBERT", 2019. Names are
//! those of the published weights, less their prefix.

use super::images::class_loss;
use super::text::{check_heads, positions, token_loss, tokens};
use crate::graph::{Graph, Init, Loss, Model};
use crate::ops::{Attention, ValueId};
use crate::{DType, Result, nn};

/// ε of the layer norms.
const EPSILON: f32 = 1e-12;

/// What an encoder is trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// To find tokens that were hidden: input `targets` i32 [n, length], −100
    /// where none is asked for.
    MaskedTokens,
    /// To sort texts into so many classes: input `labels` i32 `[n]`.
    Classes(usize),
}

/// An encoder.
///
/// Inputs: `tokens` i32 [n, length], `mask` i32 [n, length], 0 where there is
/// only padding, and those of the objective.
#[derive(Clone, Debug)]
pub struct Bert {
    /// The name on the command line.
    pub name: &'static str,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Positions that the model has.
    pub positions: usize,
    /// Tokens of an item.
    pub length: usize,
    /// Layers.
    pub layers: usize,
    /// Width of a token.
    pub width: usize,
    /// Heads, which divide the width.
    pub heads: usize,
    /// ALBERT: a narrower table of this width, and one layer's weights for all.
    pub albert: Option<usize>,
    /// What it is trained for.
    pub objective: Objective,
}

impl Bert {
    /// 109,482,240 parameters with the pooler and without a head.
    pub const BASE: Bert = Bert {
        name: "bert-base",
        vocabulary: 30_522,
        positions: 512,
        length: 512,
        layers: 12,
        width: 768,
        heads: 12,
        albert: None,
        objective: Objective::MaskedTokens,
    };

    /// 11,683,584 parameters with the pooler and without a head.
    pub const ALBERT_BASE: Bert =
        Bert { name: "albert-base", vocabulary: 30_000, albert: Some(128), ..Bert::BASE };

    /// For text as bytes; token 256 hides one.
    pub const TINY: Bert = Bert {
        name: "bert-tiny",
        vocabulary: 257,
        positions: 128,
        length: 64,
        layers: 2,
        width: 64,
        heads: 2,
        ..Bert::BASE
    };

    /// For text as bytes; token 256 hides one.
    pub const ALBERT_TINY: Bert = Bert { name: "albert-tiny", albert: Some(32), ..Bert::TINY };

    /// Width of the table of tokens.
    fn table_width(&self) -> usize {
        self.albert.unwrap_or(self.width)
    }

    fn gelu(&self, g: &mut Graph, x: ValueId) -> Result<ValueId> {
        if self.albert.is_some() { g.gelu_tanh(x) } else { g.gelu(x) }
    }

    /// The sum of what stands for token, position and kind, normalised; and
    /// the table of tokens.
    fn embed(&self, g: &mut Graph, tokens: ValueId) -> Result<(ValueId, ValueId)> {
        let (width, normal) = (self.table_width(), Init::Normal(0.02));
        let mut table = |name: &str, rows| {
            nn::embedding_table(g, &format!("{name}_embeddings"), rows, width, normal.clone())
        };
        let words = table("word", self.vocabulary)?;
        let places = table("position", self.positions)?;
        let kinds = table("token_type", 2)?;
        let x = g.embedding(words, tokens)?;
        let places = positions(g, places, self.length)?;
        // All tokens are of the first kind: items are single texts.
        let kind = g.slice(kinds, &[0, 0], &[1, width])?;
        let x = g.map(&[x, places, kind], |x| &x[0] + &x[2] + &x[1])?;
        Ok((nn::layer_norm(g, "LayerNorm", x, EPSILON)?, words))
    }

    fn layer(&self, g: &mut Graph, x: ValueId, mask: ValueId) -> Result<ValueId> {
        let parts = if self.albert.is_some() { &ALBERT_PARTS } else { &BERT_PARTS };
        let (width, heads) = (self.width, self.heads);
        let mut project = |name: &str| {
            let y = dense(g, name, x, width)?;
            nn::split_heads(g, y, heads)
        };
        let (q, k, v) = (project(parts.query)?, project(parts.key)?, project(parts.value)?);
        let y = g.attention(q, k, v, Some(mask), Attention::new(width / heads))?;
        let y = nn::join_heads(g, y)?;
        let y = dense(g, parts.attention, y, width)?;
        let y = g.add(y, x)?;
        let x = nn::layer_norm(g, parts.attention_norm, y, EPSILON)?;
        let y = dense(g, parts.inner, x, 4 * width)?;
        let y = self.gelu(g, y)?;
        let y = dense(g, parts.outer, y, width)?;
        let y = g.add(y, x)?;
        nn::layer_norm(g, parts.norm, y, EPSILON)
    }

    fn encode(&self, g: &mut Graph, mut x: ValueId, mask: ValueId) -> Result<ValueId> {
        g.scoped("encoder", |g| {
            if self.albert.is_some() {
                x = dense(g, "embedding_hidden_mapping_in", x, self.width)?;
            }
            for i in 0..self.layers {
                let name = match self.albert {
                    Some(_) => "albert_layer_groups.0.albert_layers.0".to_string(),
                    None => format!("layer.{i}"),
                };
                x = g.scoped(&name, |g| self.layer(g, x, mask))?;
            }
            Ok(x)
        })
    }

    /// From hidden [n, length, width] over a narrower layer to tokens.
    fn masked_tokens(&self, g: &mut Graph, hidden: ValueId, words: ValueId) -> Result<Loss> {
        let (head, transform) = match self.albert {
            Some(_) => ("predictions", ""),
            None => ("cls.predictions", "transform."),
        };
        g.scoped(head, |g| {
            let x = dense(g, &format!("{transform}dense"), hidden, self.table_width())?;
            let x = self.gelu(g, x)?;
            let x = nn::layer_norm(g, &format!("{transform}LayerNorm"), x, EPSILON)?;
            let bias = g.parameter("bias", &[self.vocabulary], Init::Zeros)?;
            token_loss(g, x, words, Some(bias))
        })
    }

    /// From the first token's hidden state to classes.
    fn classes(&self, g: &mut Graph, hidden: ValueId, classes: usize) -> Result<Loss> {
        let batch = g.shape(hidden)[0];
        let first = g.slice(hidden, &[0, 0, 0], &[batch, 1, self.width])?;
        let first = g.reshape(first, &[batch, self.width])?;
        let pooler = if self.albert.is_some() { "pooler" } else { "pooler.dense" };
        let x = dense(g, pooler, first, self.width)?;
        let x = g.tanh(x)?;
        let logits = dense(g, "classifier", x, classes)?;
        class_loss(g, logits)
    }
}

/// Names of a layer's parts.
struct Parts {
    query: &'static str,
    key: &'static str,
    value: &'static str,
    attention: &'static str,
    attention_norm: &'static str,
    inner: &'static str,
    outer: &'static str,
    norm: &'static str,
}

const BERT_PARTS: Parts = Parts {
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attention: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    outer: "output.dense",
    norm: "output.LayerNorm",
};

const ALBERT_PARTS: Parts = Parts {
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    attention: "attention.dense",
    attention_norm: "attention.LayerNorm",
    inner: "ffn",
    outer: "ffn_output",
    norm: "full_layer_layer_norm",
};

fn dense(g: &mut Graph, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    nn::linear_from(g, name, x, outputs, nn::Start::normal(0.02))
}

impl Model for Bert {
    fn name(&self) -> &str {
        self.name
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        check_heads(self.width, self.heads)?;
        let tokens = tokens(g, batch, self.length)?;
        let mask = g.input("mask", &[batch, self.length], DType::I32)?;
        let (x, words) = g.scoped("embeddings", |g| self.embed(g, tokens))?;
        let hidden = self.encode(g, x, mask)?;
        match self.objective {
            Objective::MaskedTokens => self.masked_tokens(g, hidden, words),
            Objective::Classes(classes) => self.classes(g, hidden, classes),
        }
    }
}
