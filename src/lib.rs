//! Plimsoll trains neural nets on any GPU inside a memory budget that you
//! name. It plans the whole training step first, proves that the plan fits,
//! allocates once, and then runs the same ops as WGSL shaders through wgpu or
//! on the CPU.
//!
//! ```
//! use plimsoll::{Batch, PlanRequest, Trainer, devices, models::Mlp};
//! use plimsoll::optimizers::{Adam, Recipe};
//!
//! # fn main() -> plimsoll::Result<()> {
//! let model = Mlp::new(&[4, 8, 2])?;
//! let recipe = Recipe::from(Adam::adamw());
//! let device = devices::open("cpu")?;
//! let request = PlanRequest::new(&model, &recipe, 3, 64 << 10);
//! let mut trainer = Trainer::new(&request, &*device, 0)?;
//! let images: [u8; 12] = [0, 9, 0, 9, 9, 0, 9, 0, 0, 9, 0, 9];
//! let labels: [i32; 3] = [1, 0, 1];
//! let batch = Batch::from([("images", &images[..]), ("labels", bytemuck::cast_slice(&labels))]);
//! trainer.train_step(&batch, 1e-2)?;
//! assert!(trainer.loss()?.is_finite());
//! assert_eq!(trainer.ledger().peak_bytes, trainer.plan().peak_bytes);
//! # Ok(())
//! # }
//! ```

mod atomic_file;
pub mod budget;
pub mod conformance;
pub mod data;
pub mod devices;
mod mapped;
pub mod models;
pub mod segmentation;
pub mod weights;

pub use plimsoll_core::backend::{Device, DeviceDescription, DeviceKind, Executor};
pub use plimsoll_core::graph::{Graph, Init, Loss, Mode, Model};
pub use plimsoll_core::null::NullDevice;
pub use plimsoll_core::plan::search::{PlanRequest, plan};
pub use plimsoll_core::plan::{Plan, verify};
pub use plimsoll_core::trainer::{Batch, Evaluation, Trainer};
pub use plimsoll_core::{
    DType, Error, Result, autodiff, backend, error, expression, graph, launch, ledger, nn, null,
    ops, optimizers, philox, program, trainer,
};

#[doc = include_str!("../docs/custom_op.md")]
pub mod custom_op {
    pub use plimsoll_core::ops::custom::*;
}

/// The planner, whole.
pub mod planner {
    pub use plimsoll_core::plan::*;
}
