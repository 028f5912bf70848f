//! The heart of Plimsoll: graph, ops, autodiff, step programs, the memory
//! planner, the ledger and the trainer. It contains no device code and does no
//! input or output of its own; backends implement [`backend::Device`].

pub mod autodiff;
pub mod backend;
pub mod device;
pub mod dtype;
pub mod error;
pub mod expression;
pub mod graph;
pub mod launch;
pub mod ledger;
pub mod nn;
pub mod null;
pub mod ops;
pub mod optimizers;
pub mod philox;
pub mod plan;
pub mod program;
pub mod shape;
pub mod trainer;

pub use dtype::DType;
pub use error::{Error, Result};
