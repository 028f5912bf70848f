//! The heart of Plimsoll: graph, ops, autodiff, step programs, the memory
//! planner, the ledger and the trainer. It contains no device code and does no
//! input or output of its own; backends implement [`backend::Device`].

pub mod backend;
pub mod dtype;
pub mod error;
pub mod expression;
pub mod launch;
pub mod ledger;
pub mod ops;
pub mod philox;
pub mod plan;
pub mod shape;

pub use dtype::DType;
pub use error::{Error, Result};
