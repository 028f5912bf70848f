//! The one error type of the library.

use serde::Serialize;

use crate::dtype::DType;

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between describing a model and running its steps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op was given shapes that it cannot take.
    #[error("{op}: {message}")]
    Shape {
        /// The op's name, with its scope where known.
        op: String,
        /// What was given, what was expected.
        message: String,
    },
    /// An op was given an element type that it cannot take.
    #[error("{op}: element type {given} is not supported here; expected {expected}")]
    Type {
        /// The op's name.
        op: String,
        /// The type found.
        given: DType,
        /// The types that would do.
        expected: &'static str,
    },
    /// A setting (batch size, learning rate, …) is outside its range.
    #[error("{name}: {message}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// What was given, what was expected.
        message: String,
    },
    /// No plan fits the budget.
    #[error("{0}")]
    OverBudget(Box<OverBudget>),
    /// A request would take the device past its budget. With a checked plan
    /// this cannot happen; it is the line that holds when all else fails.
    #[error(
        "the ledger refused {request_bytes} bytes for {what}: {used_bytes} of {budget_bytes} bytes are in use"
    )]
    Ledger {
        /// What the bytes were for.
        what: String,
        /// The size of the request.
        request_bytes: u64,
        /// What was in use before.
        used_bytes: u64,
        /// The budget.
        budget_bytes: u64,
    },
    /// A tensor does not fit into one page of the device.
    #[error(
        "{tensor} takes {bytes} bytes, more than one binding of {device} may span ({page_bytes} bytes); use a smaller batch or another device"
    )]
    PageOverrun {
        /// The tensor's name.
        tensor: String,
        /// Its size.
        bytes: u64,
        /// The device's name.
        device: String,
        /// The largest page.
        page_bytes: u64,
    },
    /// The plan failed the independent check: a defect of Plimsoll.
    #[error("the plan failed its check ({0}); this is a defect of Plimsoll, please report it")]
    Plan(String),
    /// The device is missing, failed or was lost.
    #[error("device {device}: {message}")]
    Device {
        /// The device's name, or what was asked for.
        device: String,
        /// What happened and what to do.
        message: String,
    },
    /// The device refused memory that the budget allowed.
    #[error(
        "device {device} refused {request_bytes} bytes for {what}, although the budget allows them; name a smaller --budget or free memory on the device"
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// What the bytes were for.
        what: String,
        /// The size of the request.
        request_bytes: u64,
    },
    /// A kernel failed to compile.
    #[error("kernel {kernel} on {device}: {message}")]
    Kernel {
        /// The kernel's name.
        kernel: String,
        /// The device's name.
        device: String,
        /// The compiler's message.
        message: String,
    },
    /// Data handed to a step does not match the model's inputs.
    #[error("input {name}: {message}")]
    Input {
        /// The input's name.
        name: String,
        /// What was given, what was expected.
        message: String,
    },
}

/// Why no plan fits, with the smallest budget that would.
#[derive(Clone, Debug, Serialize)]
pub struct OverBudget {
    /// The budget that was asked for.
    pub budget_bytes: u64,
    /// The smallest budget for which a plan exists.
    pub minimum_bytes: u64,
    /// The op at which the smallest plan reaches its peak.
    pub at: String,
    /// The largest tensors live there, with their bytes.
    pub tensors: Vec<(String, u64)>,
    /// Levers that the caller has forbidden.
    pub forbidden: Vec<String>,
}

impl std::fmt::Display for OverBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no plan fits {} bytes: the smallest budget that works is {} bytes, set at {}",
            self.budget_bytes, self.minimum_bytes, self.at
        )?;
        for (i, (name, bytes)) in self.tensors.iter().enumerate() {
            write!(f, "{} {name} ({bytes} bytes)", if i == 0 { " by" } else { "," })?;
        }
        if !self.forbidden.is_empty() {
            write!(f, "; forbidden: {}", self.forbidden.join(", "))?;
        }
        Ok(())
    }
}

impl Error {
    /// A shape error.
    pub fn shape(op: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Shape { op: op.into(), message: message.into() }
    }

    /// A device error.
    pub fn device(device: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Device { device: device.into(), message: message.into() }
    }

    /// The exit code of the command: 2 usage, 3 no plan fits, 4 device, 5 data.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Shape { .. } | Error::Type { .. } | Error::Setting { .. } => 2,
            Error::OverBudget(_) | Error::Ledger { .. } => 3,
            Error::PageOverrun { .. }
            | Error::Plan(_)
            | Error::Device { .. }
            | Error::OutOfMemory { .. }
            | Error::Kernel { .. } => 4,
            Error::Input { .. } => 5,
        }
    }
}
