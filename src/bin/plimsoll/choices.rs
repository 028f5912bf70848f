//! The flags that `plan` and `train` share, and what they stand for: both plan
//! the same step of the same model, so that what one says holds for the other.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, ValueEnum};
use plimsoll::budget::Budget;
use plimsoll::data::{TrainTest, embedded_sample, load_folder};
use plimsoll::models::{Sizes, Zoo};
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::{Device, Model, PlanRequest, devices, models};

use crate::failure::Failure;

/// Items of a step where the user names none and the data set has enough.
const DEFAULT_BATCH: usize = 256;

/// A larger batch is surely a slip, and would be searched for hours.
const MAXIMUM_BATCH: u64 = 1 << 20;

/// What is to be planned, as the user named it.
#[derive(Args)]
pub struct Choices {
    /// The model: mlp (784-512-256-10, ReLU, for images of 28×28)
    #[arg(value_name = "MODEL", value_parser = PossibleValuesParser::new(models::NAMES))]
    pub model: String,

    /// Folder with the four IDX files of MNIST, Fashion-MNIST or their like, raw or gzipped
    /// [default: the embedded sample of Fashion-MNIST]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Items of a training step; the planner splits them into micro-batches where the budget
    /// asks for it [default: 256, or the whole training set where that is smaller]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAXIMUM_BATCH))]
    pub batch: Option<usize>,

    /// The line: all memory requested from the device stays within it. 512KiB, 24MiB, 8GiB,
    /// 16GB, a number of bytes, or 80% of the free memory [default: 80%]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Budget>,

    /// cpu, wgpu, wgpu:N or a part of a device's name [default: the fastest real GPU, else cpu]
    #[arg(long, value_name = "D")]
    pub device: Option<String>,

    /// The rule that updates the weights
    #[arg(long, value_name = "O", value_enum, default_value_t = OptimizerName::Adamw)]
    pub optimizer: OptimizerName,

    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
}

/// An optimizer on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum OptimizerName {
    /// With momentum 0.9
    Sgd,
    /// As PyTorch's
    Adam,
    /// As PyTorch's, weight decay 0.01
    Adamw,
}

impl OptimizerName {
    fn recipe(self) -> Recipe {
        match self {
            OptimizerName::Sgd => Sgd::default().into(),
            OptimizerName::Adam => Adam::default().into(),
            OptimizerName::Adamw => Adam::adamw().into(),
        }
    }
}

/// The choices with everything that they name opened and loaded.
pub struct Setup {
    /// The model at its published size.
    pub model: Box<dyn Model>,
    /// The optimizer with its settings.
    pub recipe: Recipe,
    /// The device.
    pub device: Arc<dyn Device>,
    /// The data set.
    pub data: TrainTest,
    /// Items of a step.
    pub batch: usize,
    /// The budget on this device.
    pub budget_bytes: u64,
}

impl Choices {
    /// Opens what the flags name. `threads` are those of the cpu backend.
    pub fn open(&self, threads: Option<usize>) -> Result<Setup, Failure> {
        let Zoo { model, .. } = models::by_name(&self.model, &Sizes::default())?;
        let device = self.open_device(threads)?;
        let budget_bytes = self.budget.unwrap_or_default().bytes(device.description())?;
        let data = match &self.data {
            Some(folder) => load_folder(folder)?,
            None => embedded_sample()?,
        };
        let batch = self.batch.unwrap_or_else(|| DEFAULT_BATCH.min(data.train.items()));
        let recipe = self.optimizer.recipe();
        Ok(Setup { model, recipe, device, data, batch, budget_bytes })
    }

    /// A remark where the batch is not the one that the help promises first.
    pub fn batch_note(&self, setup: &Setup) -> Option<String> {
        let shrunk = self.batch.is_none() && setup.batch < DEFAULT_BATCH;
        shrunk.then(|| {
            format!(
                "the training set has {} items: the batch is {} instead of {DEFAULT_BATCH}",
                setup.data.train.items(),
                setup.batch
            )
        })
    }

    fn open_device(&self, threads: Option<usize>) -> Result<Arc<dyn Device>, Failure> {
        let device = match &self.device {
            Some(wanted) => devices::open(wanted)?,
            None => devices::open_default()?,
        };
        match threads {
            None => Ok(device),
            #[cfg(feature = "cpu")]
            Some(threads) if device.description().backend == "cpu" => {
                Ok(Arc::new(plimsoll_cpu::CpuDevice::with_threads(threads)?))
            }
            Some(_) => Err(Failure::Usage(format!(
                "--threads is for the device cpu, not for {} ({}); leave it out or add \
                 --device cpu",
                device.description().id,
                device.description().name
            ))),
        }
    }
}

impl Setup {
    /// The request to the planner, evaluation of the test set included.
    pub fn request(&self, budget_bytes: u64) -> PlanRequest<'_> {
        PlanRequest {
            model: &*self.model,
            recipe: &self.recipe,
            batch: self.batch,
            evaluate_items: Some(self.data.test.items()),
            predict_items: None,
            budget_bytes,
            micro_batches: None,
            split_batch_statistics: false,
        }
    }
}
