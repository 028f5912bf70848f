//! GPT-2: A. Radford et al., "Language models are unsupervised multitask
//! learners", 2019, with the names of the published weights.

use super::text::{check_heads, positions, token_loss, tokens};
use crate::graph::{Graph, Init, Loss, Model};
use crate::ops::{Attention, ValueId};
use crate::{Result, nn};

/// ε of the layer norms.
const EPSILON: f32 = 1e-5;

/// A decoder whose output layer is its table of tokens.
///
/// Inputs: `tokens` and `targets` i32 [n, length]; a target of −100 does not
/// count.
#[derive(Clone, Debug)]
pub struct Gpt2 {
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
    /// Probability of dropout behind the embedding and each branch; the
    /// probabilities of attention are not dropped.
    pub dropout: f32,
}

impl Gpt2 {
    /// 124,439,808 parameters.
    pub const SMALL: Gpt2 = Gpt2 {
        name: "gpt2",
        vocabulary: 50_257,
        positions: 1024,
        length: 1024,
        layers: 12,
        width: 768,
        heads: 12,
        dropout: 0.0,
    };

    /// 354,823,168 parameters.
    pub const MEDIUM: Gpt2 =
        Gpt2 { name: "gpt2-medium", layers: 24, width: 1024, heads: 16, ..Gpt2::SMALL };

    /// For text as bytes.
    pub const TINY: Gpt2 = Gpt2 {
        name: "gpt2-tiny",
        vocabulary: 256,
        positions: 128,
        length: 64,
        layers: 2,
        width: 64,
        heads: 2,
        dropout: 0.0,
    };

    fn layer(&self, g: &mut Graph, x: ValueId) -> Result<ValueId> {
        let width = self.width;
        let batch = g.shape(x)[0];
        // What is added up over the layers starts smaller.
        let branch = nn::Start::normal(0.02 / (2.0 * self.layers as f32).sqrt());
        let y = nn::layer_norm(g, "ln_1", x, EPSILON)?;
        let y = nn::linear_from(g, "attn.c_attn", y, 3 * width, nn::Start::normal(0.02))?;
        let y =
            nn::packed_attention(g, y, self.heads, Attention::new(width / self.heads).causal())?;
        let y = nn::linear_from(g, "attn.c_proj", y, width, branch.clone())?;
        let y = g.dropout(y, self.dropout, batch)?;
        let x = g.add(x, y)?;
        let y = nn::layer_norm(g, "ln_2", x, EPSILON)?;
        let y = nn::linear_from(g, "mlp.c_fc", y, 4 * width, nn::Start::normal(0.02))?;
        let y = g.gelu_tanh(y)?;
        let y = nn::linear_from(g, "mlp.c_proj", y, width, branch)?;
        let y = g.dropout(y, self.dropout, batch)?;
        g.add(x, y)
    }

    /// The last hidden state [n, length, width], and the output layer's table.
    fn hidden(&self, g: &mut Graph, batch: usize) -> Result<(ValueId, ValueId)> {
        check_heads(self.width, self.heads)?;
        let tokens = tokens(g, batch, self.length)?;
        let (width, normal) = (self.width, Init::Normal(0.02));
        let table = nn::embedding_table(g, "wte", self.vocabulary, width, normal.clone())?;
        let places = nn::embedding_table(g, "wpe", self.positions, width, normal)?;
        let x = g.embedding(table, tokens)?;
        let places = positions(g, places, self.length)?;
        let x = g.add(x, places)?;
        let mut x = g.dropout(x, self.dropout, batch)?;
        for i in 0..self.layers {
            x = g.scoped(&format!("h.{i}"), |g| self.layer(g, x))?;
        }
        Ok((nn::layer_norm(g, "ln_f", x, EPSILON)?, table))
    }
}

impl Model for Gpt2 {
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
