//! What models of text share: their inputs, and the loss of the next token.

use crate::graph::{Graph, Loss};
use crate::ops::{CrossEntropy, ValueId};
use crate::{DType, Error, Result};

/// The target that does not count.
pub const IGNORED: i32 = -100;

/// The input `tokens` i32 [batch, length].
pub fn tokens(g: &mut Graph, batch: usize, length: usize) -> Result<ValueId> {
    g.input("tokens", &[batch, length], DType::I32)
}

/// Cross-entropy of hidden [batch, length, width] projected onto a table
/// [vocabulary, width] with the input `targets` i32 [batch, length], of which
/// [`IGNORED`] do not count. The logits never exist whole.
pub fn token_loss(
    g: &mut Graph,
    hidden: ValueId,
    table: ValueId,
    bias: Option<ValueId>,
) -> Result<Loss> {
    let [batch, length, width] = g.shape(hidden)[..] else {
        let message = format!("shape {:?}, expected [batch, length, width]", g.shape(hidden));
        return Err(Error::shape(g.scoped_name("token_loss"), message));
    };
    let targets = g.input("targets", &[batch, length], DType::I32)?;
    let targets = g.reshape(targets, &[batch * length])?;
    let hidden = g.reshape(hidden, &[batch * length, width])?;
    let loss = CrossEntropy { ignore_index: IGNORED, ..CrossEntropy::default() };
    g.linear_cross_entropy(hidden, table, bias, targets, loss)
}

/// Rows 0, 1, … of a table of positions, as many as there are tokens.
pub fn positions(g: &mut Graph, table: ValueId, length: usize) -> Result<ValueId> {
    let (rows, width) = (g.shape(table)[0], g.shape(table)[1]);
    if length > rows {
        let message = format!("{length} tokens: this model has {rows} positions");
        return Err(Error::Setting { name: "seq", message });
    }
    g.slice(table, &[0, 0], &[length, width])
}

/// That heads divide the width.
pub fn check_heads(width: usize, heads: usize) -> Result<()> {
    if heads > 0 && width.is_multiple_of(heads) {
        return Ok(());
    }
    let message = format!("{heads} heads do not divide a width of {width}");
    Err(Error::Setting { name: "heads", message })
}
