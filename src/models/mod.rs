//! The model zoo: what people train, at its published size and at one for
//! tests.

mod bert;
mod gpt2;
mod images;
mod lenet;
mod llama;
mod mlp;
mod resnet;
mod sd_unet;
mod text;
mod unet;
mod vit;
mod zoo;

pub use bert::{Bert, Objective};
pub use gpt2::Gpt2;
pub use lenet::LeNet;
pub use llama::Llama;
pub use mlp::Mlp;
pub use resnet::{Block, ResNet};
pub use sd_unet::{SdUnet, TIMESTEPS};
pub use text::IGNORED;
pub use unet::{Style, Unet};
pub use vit::Vit;
pub use zoo::{Domain, NAMES, Sizes, Zoo, by_name};
