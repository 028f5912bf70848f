//! The ledger: every byte requested from a device, against the budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What memory is for. The order is that of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Weights.
    Parameter,
    /// Gradients of weights.
    Gradient,
    /// Momentum, variance and the like.
    OptimizerState,
    /// Values of the forward pass.
    Activation,
    /// Gradients of activations and other values of the backward pass.
    ActivationGradient,
    /// Data of the current micro-batch.
    Input,
    /// Constants, step scalars, sums and running statistics.
    State,
    /// Scratch memory of single ops.
    Workspace,
    /// Arena bytes that no tensor uses at the peak.
    Gap,
    /// Kernel parameters.
    ParameterBlock,
    /// Buffers through which data goes up and down.
    Staging,
}

/// One request that a loaded plan makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What it is for, in words.
    pub what: String,
    /// Its size.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Book {
    budget_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
    requests: u64,
    held: BTreeMap<u64, Request>,
    refuse_at: Option<u64>,
}

/// Counts requests and refuses those past the budget. Clones share one book.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Book>>);

/// Memory held; dropping it gives the bytes back to the ledger. Keep it beside
/// the device buffer that it stands for.
#[derive(Debug)]
pub struct Grant {
    book: Arc<Mutex<Book>>,
    id: u64,
}

/// What a ledger has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerReport {
    /// The line.
    pub budget_bytes: u64,
    /// Bytes held now.
    pub used_bytes: u64,
    /// Most bytes ever held at once.
    pub peak_bytes: u64,
    /// Requests ever granted.
    pub requests: u64,
    /// What is held now.
    pub held: Vec<Request>,
}

impl Ledger {
    /// An empty ledger with a budget.
    pub fn new(budget_bytes: u64) -> Ledger {
        Ledger(Arc::new(Mutex::new(Book { budget_bytes, ..Book::default() })))
    }

    /// Asks for bytes. A backend calls this before each device allocation.
    ///
    /// # Errors
    /// [`Error::Ledger`] past the budget; [`Error::OutOfMemory`] where a
    /// refusal was injected.
    pub fn request(&self, device: &str, request: &Request) -> Result<Grant> {
        let mut book = self.lock();
        if book.refuse_at == Some(book.requests) {
            return Err(Error::OutOfMemory {
                device: device.to_string(),
                what: request.what.clone(),
                request_bytes: request.bytes,
            });
        }
        let used = book.used_bytes.saturating_add(request.bytes);
        if used > book.budget_bytes {
            return Err(Error::Ledger {
                what: request.what.clone(),
                request_bytes: request.bytes,
                used_bytes: book.used_bytes,
                budget_bytes: book.budget_bytes,
            });
        }
        let id = book.requests;
        book.requests += 1;
        book.used_bytes = used;
        book.peak_bytes = book.peak_bytes.max(used);
        book.held.insert(id, request.clone());
        Ok(Grant { book: Arc::clone(&self.0), id })
    }

    /// Makes the request number `index` (from 0) fail as if the driver had
    /// refused it: for tests of what happens then.
    pub fn inject_refusal(&self, index: u64) {
        self.lock().refuse_at = Some(index);
    }

    /// What has happened so far.
    pub fn report(&self) -> LedgerReport {
        let book = self.lock();
        LedgerReport {
            budget_bytes: book.budget_bytes,
            used_bytes: book.used_bytes,
            peak_bytes: book.peak_bytes,
            requests: book.requests,
            held: book.held.values().cloned().collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Book> {
        // Every change to the book is complete before a panic could occur.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut book = self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(request) = book.held.remove(&self.id) {
            book.used_bytes -= request.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u64) -> Request {
        Request { what: "test".into(), bytes }
    }

    #[test]
    fn holds_the_line() {
        let ledger = Ledger::new(100);
        let first = ledger.request("d", &request(60)).expect("fits");
        assert!(matches!(ledger.request("d", &request(41)), Err(Error::Ledger { .. })));
        let second = ledger.request("d", &request(40)).expect("fits exactly");
        drop(first);
        drop(second);
        let report = ledger.report();
        assert_eq!((report.used_bytes, report.peak_bytes, report.requests), (0, 100, 2));
    }

    #[test]
    fn injected_refusal() {
        let ledger = Ledger::new(100);
        ledger.inject_refusal(1);
        let _first = ledger.request("d", &request(1)).expect("the first is granted");
        assert!(matches!(ledger.request("d", &request(1)), Err(Error::OutOfMemory { .. })));
    }
}
