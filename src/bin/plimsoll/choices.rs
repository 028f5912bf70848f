//! The flags that `plan` and `train` share, and what they stand for: both plan
//! the same step of the same model, so that what one says holds for the other.

use std::sync::Arc;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, ValueParser};
use clap::{Args, ValueEnum};
use plimsoll::budget::Budget;
use plimsoll::data::Split;
use plimsoll::models::Zoo;
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::{Device, Model, PlanRequest, devices, models};

use crate::data::{DataChoices, default_batch};
use crate::failure::Failure;

/// A larger batch is surely a slip, and would be searched for hours.
const MAXIMUM_BATCH: u64 = 1 << 20;

/// What is to be planned, as the user named it.
#[derive(Args)]
pub struct Choices {
    /// The model, at its published size where the flags below do not say otherwise
    #[arg(value_name = "MODEL", value_parser = PossibleValuesParser::new(models::NAMES))]
    pub model: String,

    #[command(flatten)]
    pub data: DataChoices,

    /// Items of a training step; the planner splits them into micro-batches or computes values
    /// again where the budget asks for it [default: 256 small images, 32 large ones, 8 texts, 4 pictures with masks or
    /// latents, 2 volumes; or the whole training set where that is smaller]
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

    /// Scale all gradients down together where their norm exceeds this
    #[arg(long, value_name = "NORM", allow_hyphen_values = true,
          value_parser = ValueParser::new(positive))]
    clip: Option<f32>,

    /// Leave parameters with these names as they are: no gradient, no optimizer state. `*` stands
    /// for any text; may be given several times
    #[arg(long, value_name = "PATTERN")]
    freeze: Vec<String>,

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

fn positive(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("expected a number above 0, such as 1.0".into()),
    }
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
    /// The data set; none for a model whose sizes the embedded sample does not have.
    pub data: Option<Split>,
    /// Items of a step by default, were there enough.
    default_batch: usize,
    /// Items of a step.
    pub batch: usize,
    /// The budget on this device.
    pub budget_bytes: u64,
}

impl Choices {
    /// Opens what the flags name. `threads` are those of the cpu backend.
    pub fn open(&self, threads: Option<usize>) -> Result<Setup, Failure> {
        let (Zoo { model, domain }, data) = self.data.open(&self.model)?;
        let device = self.open_device(threads)?;
        let budget_bytes = self.budget.unwrap_or_default().bytes(device.description())?;
        let default_batch = default_batch(&domain);
        let items = data.as_ref().map_or(usize::MAX, |d| d.train.items());
        let batch = self.batch.unwrap_or(default_batch.min(items));
        let recipe = self.recipe()?;
        Ok(Setup { model, recipe, device, data, default_batch, batch, budget_bytes })
    }

    /// A remark where the batch is not the one that the help promises first.
    pub fn batch_note(&self, setup: &Setup) -> Option<String> {
        let shrunk = self.batch.is_none() && setup.batch < setup.default_batch;
        shrunk.then(|| {
            format!(
                "the training set has {0} items: the batch is {0} instead of {1}",
                setup.batch, setup.default_batch
            )
        })
    }

    fn recipe(&self) -> Result<Recipe, Failure> {
        let mut recipe = self.optimizer.recipe();
        if let Some(norm) = self.clip {
            recipe = recipe.clip_norm(norm);
        }
        for pattern in &self.freeze {
            recipe = recipe.freeze(pattern);
        }
        recipe.check()?;
        Ok(recipe)
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
            evaluate_items: Some(self.data.as_ref().map_or(self.batch, |d| d.test.items())),
            ..PlanRequest::new(&*self.model, &self.recipe, self.batch, budget_bytes)
        }
    }
}
