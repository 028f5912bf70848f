//! The model zoo.

mod mlp;

pub use mlp::Mlp;

use crate::Model;

/// A model of the zoo by its name on the command line, at its published size.
pub fn by_name(name: &str) -> Option<Box<dyn Model>> {
    match name {
        "mlp" => Mlp::new(&Mlp::FASHION_MNIST).ok().map(|m| Box::new(m) as Box<dyn Model>),
        _ => None,
    }
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 1] = ["mlp"];
