//! The weights of a model in training.

use std::collections::BTreeMap;
use std::path::Path;

use super::Shapes;
use super::error::WeightsError;
use super::load::{Loaded, load};
use super::names::NameMap;
use super::save::save;
use crate::ledger::Class;
use crate::planner::PlannedLeaf;
use crate::{DType, Init, Plan, Trainer};

/// Names of Plimsoll's own scalars begin so.
const OWN: &str = "plimsoll.";

/// Whether a leaf is part of the model: its weights and running statistics,
/// not the optimizer's state, the step's sums or constant tables.
fn is_kept(name: &str, leaf: &PlannedLeaf) -> bool {
    match leaf.class {
        Class::Parameter => true,
        Class::State => !name.starts_with(OWN) && !matches!(leaf.init, Init::Words(_)),
        _ => false,
    }
}

/// The model's tensors in a plan, as [`save`] and [`load`] take them: its
/// parameters and running statistics.
///
/// # Errors
/// [`WeightsError::Tensor`] for one that is not f32.
pub fn shapes(plan: &Plan) -> Result<Shapes, WeightsError> {
    let kept = plan.leaves.iter().filter(|(name, leaf)| is_kept(name, leaf));
    kept.map(|(name, leaf)| {
        let tensor = &leaf.operand.tensor;
        match tensor.dtype {
            DType::F32 => Ok((name.clone(), tensor.shape.clone())),
            other => Err(WeightsError::Tensor {
                name: name.clone(),
                reason: format!("its type is {other}; only f32 is saved"),
            }),
        }
    })
    .collect()
}

/// The places of the model's tensors.
fn storages(plan: &Plan) -> BTreeMap<String, usize> {
    let kept = plan.leaves.iter().filter(|(name, leaf)| is_kept(name, leaf));
    kept.map(|(name, leaf)| (name.clone(), leaf.operand.storage)).collect()
}

/// Saves a model in training: its parameters and running statistics, chunk by
/// chunk from the device.
///
/// # Errors
/// Those of [`save`] and of the device.
pub fn save_model(trainer: &mut Trainer, path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let (shapes, storages) = (shapes(trainer.plan())?, storages(trainer.plan()));
    let executor = trainer.executor();
    save(path, &shapes, |name, offset, chunk| executor.read(storages[name], offset, chunk))
}

/// Loads the model's parameters and running statistics from a file. The
/// optimizer's state stays as it is.
///
/// # Errors
/// Those of [`load`] and of the device.
pub fn load_model(
    trainer: &mut Trainer,
    path: impl AsRef<Path>,
    names: &NameMap,
) -> Result<Loaded, WeightsError> {
    let (shapes, storages) = (shapes(trainer.plan())?, storages(trainer.plan()));
    let executor = trainer.executor();
    let loaded = load(path, &shapes, names, |name, offset, chunk| {
        executor.write(storages[name], offset, chunk)
    })?;
    executor.synchronize()?;
    Ok(loaded)
}
