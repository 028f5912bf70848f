//! A multi-layer perceptron with ReLU, for images of bytes.

use super::images::class_loss;
use crate::expression::Scalar;
use crate::graph::{Graph, Loss, Model};
use crate::ops::ValueId;
use crate::{DType, Error, Result, nn};

/// Fully connected layers `fc1`, `fc2`, … with ReLU between them.
///
/// Inputs: `images` u8 [n, first width], mapped to [−1, 1]; `labels` i32 `[n]`.
#[derive(Clone, Debug)]
pub struct Mlp {
    widths: Vec<usize>,
    dropout: f32,
}

impl Mlp {
    /// Widths for 28×28 images of ten classes.
    pub const FASHION_MNIST: [usize; 4] = [784, 512, 256, 10];

    /// A perceptron of these widths, the inputs' first and the classes' last.
    ///
    /// # Errors
    /// Fewer than two widths, or one that is 0.
    pub fn new(widths: &[usize]) -> Result<Mlp> {
        if widths.len() < 2 || widths.contains(&0) {
            let message = format!("{widths:?}: expected at least two widths, none of them 0");
            return Err(Error::Setting { name: "widths", message });
        }
        Ok(Mlp { widths: widths.to_vec(), dropout: 0.0 })
    }

    /// The same with dropout after each hidden layer.
    pub fn with_dropout(mut self, probability: f32) -> Mlp {
        self.dropout = probability;
        self
    }

    /// Logits [n, classes] of the input.
    fn logits(&self, g: &mut Graph, batch: usize) -> Result<ValueId> {
        let images = g.input("images", &[batch, self.widths[0]], DType::U8)?;
        let mut x = g.map(&[images], |x| x[0].cast(Scalar::F32) * (2.0 / 255.0) - 1.0)?;
        let layers = self.widths.len() - 1;
        for (i, width) in self.widths[1..].iter().enumerate() {
            x = nn::linear(g, &format!("fc{}", i + 1), x, *width)?;
            if i + 1 < layers {
                x = g.relu(x)?;
                x = g.dropout(x, self.dropout, batch)?;
            }
        }
        Ok(x)
    }
}

impl Model for Mlp {
    fn name(&self) -> &str {
        "mlp"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let logits = self.logits(g, batch)?;
        class_loss(g, logits)
    }

    fn predict(&self, g: &mut Graph, batch: usize) -> Result<Option<ValueId>> {
        self.logits(g, batch).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Mode;

    #[test]
    fn parameter_count() {
        let mut g = Graph::new(Mode::Train);
        Mlp::new(&Mlp::FASHION_MNIST).expect("valid").forward(&mut g, 2).expect("traces");
        let parameters = crate::autodiff::parameters(&g);
        let count: usize = parameters.iter().map(|p| g.value(*p).tensor.numel()).sum();
        assert_eq!(count, 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
    }
}
