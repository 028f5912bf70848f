//! Batches of one epoch, prepared ahead by a thread.
//!
//! The thread copies items into a batch while the trainer works on the one
//! before. A bounded channel holds at most [`QUEUED`] ready batches, and batches
//! that were used come back over a second channel, so that after the first few
//! no memory is allocated: at most [`BUFFERS`] batches exist at any moment, if
//! the caller holds one at a time.

use std::iter::FusedIterator;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::dataset::{Dataset, Items};
use super::error::DataError;
use super::shuffle::shuffled_order;

/// Ready batches that wait for the trainer.
const QUEUED: usize = 2;
/// Batches that exist at once: the queued ones, the thread's and the caller's.
const BUFFERS: usize = QUEUED + 2;

/// The batches of one epoch of a data set, as an iterator.
///
/// Training batches come in an order that (seed, epoch) alone decides, and all
/// have the same size: the items that are left over after the last whole batch
/// are dropped in that epoch, others in the next. Evaluation batches come in the
/// order of the data set, and the last one holds what is left over.
///
/// Hand every batch back with [`recycle`](Self::recycle) when it is used, and
/// start the next epoch with [`start_epoch`](Self::start_epoch): then a run
/// allocates four batches in all, however long it is. Batches that are not
/// handed back are simply allocated anew. Dropping the iterator early ends its
/// thread.
pub struct Batches {
    dataset: Arc<dyn Dataset>,
    batch_items: usize,
    /// The seed of the shuffle; evaluation does not shuffle.
    seed: Option<u64>,
    batches: usize,
    remaining: usize,
    worker: Option<Worker>,
}

impl Batches {
    /// The training batches of `epoch`, each of exactly `batch_items` items.
    ///
    /// # Errors
    ///
    /// [`DataError::ZeroBatch`], [`DataError::SmallerThanBatch`] if there is not
    /// one whole batch, [`DataError::Thread`], and those of
    /// [`Dataset::check`].
    pub fn training(
        dataset: Arc<dyn Dataset>,
        batch_items: usize,
        seed: u64,
        epoch: u64,
    ) -> Result<Self, DataError> {
        Self::new(dataset, batch_items, Some(seed), epoch)
    }

    /// All items in order, in batches of `batch_items` items and a last one of
    /// what is left over.
    ///
    /// # Errors
    ///
    /// [`DataError::ZeroBatch`], [`DataError::Thread`], and those of
    /// [`Dataset::check`].
    pub fn evaluation(dataset: Arc<dyn Dataset>, batch_items: usize) -> Result<Self, DataError> {
        Self::new(dataset, batch_items, None, 0)
    }

    fn new(
        dataset: Arc<dyn Dataset>,
        batch_items: usize,
        seed: Option<u64>,
        epoch: u64,
    ) -> Result<Self, DataError> {
        if batch_items == 0 {
            return Err(DataError::ZeroBatch);
        }
        // What is checked here cannot change while the `Arc` is held, so that the
        // thread need not expect any fault.
        dataset.check()?;
        let items = dataset.items();
        let batches = match seed {
            Some(_) => items / batch_items,
            None => items.div_ceil(batch_items),
        };
        if batches == 0 {
            return Err(DataError::SmallerThanBatch { items, batch_items });
        }
        let mut this = Self { dataset, batch_items, seed, batches, remaining: 0, worker: None };
        this.start_epoch(epoch)?;
        Ok(this)
    }

    /// Leaves the current epoch, finished or not, and begins `epoch` with the
    /// same data set, batch size and seed; the buffers are kept. Evaluation
    /// begins again, whatever the number.
    ///
    /// # Errors
    ///
    /// [`DataError::Thread`]; the iterator is then at its end.
    pub fn start_epoch(&mut self, epoch: u64) -> Result<(), DataError> {
        self.remaining = 0;
        let spares = self.worker.take().map(Worker::stop).unwrap_or_default();
        let job = Job {
            dataset: Arc::clone(&self.dataset),
            batch_items: self.batch_items,
            batches: self.batches,
            shuffle: self.seed.map(|seed| (seed, epoch)),
        };
        let worker = Worker::start(job, spares).map_err(|source| DataError::Thread { source })?;
        self.worker = Some(worker);
        self.remaining = self.batches;
        Ok(())
    }

    /// Takes a used batch back, so that its memory serves again.
    pub fn recycle(&self, batch: Items) {
        if let Some(worker) = &self.worker {
            // A full channel has buffers enough, an ended thread needs none
            // before `start_epoch`, which finds them in the channel.
            let _ = worker.returns.try_send(batch);
        }
    }

    /// The number of batches of a whole epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches
    }
}

impl Iterator for Batches {
    type Item = Items;

    fn next(&mut self) -> Option<Items> {
        if self.remaining == 0 {
            return None;
        }
        let batch = self.worker.as_ref()?.ready.recv().ok();
        self.remaining = batch.as_ref().map_or(0, |_| self.remaining - 1);
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Batches {}
impl FusedIterator for Batches {}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop();
        }
    }
}

/// What the thread is to prepare.
struct Job {
    dataset: Arc<dyn Dataset>,
    batch_items: usize,
    batches: usize,
    /// Seed and epoch.
    shuffle: Option<(u64, u64)>,
}

impl Job {
    /// Runs until the epoch is prepared or nobody listens; returns the buffers
    /// that are at hand then.
    fn run(
        self,
        ready: &SyncSender<Items>,
        returns: Receiver<Items>,
        mut spares: Vec<Items>,
    ) -> (Vec<Items>, Receiver<Items>) {
        // `Dataset::check` has seen that the items fit a u32.
        let items = self.dataset.items() as u32;
        let (seed, epoch) = self.shuffle.unwrap_or_default();
        let order = match self.shuffle {
            Some((seed, epoch)) => shuffled_order(items, seed, epoch),
            None => (0..items).collect(),
        };
        for chosen in order.chunks(self.batch_items).take(self.batches) {
            let mut batch = spares.pop().or_else(|| returns.try_recv().ok()).unwrap_or_default();
            batch.fill(&*self.dataset, chosen, seed, epoch);
            if let Err(SendError(unsent)) = ready.send(batch) {
                spares.push(unsent);
                break;
            }
        }
        (spares, returns)
    }
}

/// The running thread and the two channels to it.
#[derive(Debug)]
struct Worker {
    ready: Receiver<Items>,
    returns: SyncSender<Items>,
    thread: JoinHandle<(Vec<Items>, Receiver<Items>)>,
}

impl Worker {
    fn start(job: Job, spares: Vec<Items>) -> std::io::Result<Self> {
        let (send_ready, ready) = sync_channel(QUEUED);
        let (returns, receive_returns) = sync_channel(BUFFERS);
        let thread = thread::Builder::new()
            .name("plimsoll-batches".to_owned())
            .spawn(move || job.run(&send_ready, receive_returns, spares))?;
        Ok(Self { ready, returns, thread })
    }

    /// Ends the thread and returns the buffers that are not with the caller, at
    /// most [`BUFFERS`].
    fn stop(self) -> Vec<Items> {
        let mut buffers: Vec<Items> = self.ready.try_iter().collect();
        // A thread that waits to send finds nobody there, and ends.
        drop(self.ready);
        if let Ok((spares, returns)) = self.thread.join() {
            buffers.extend(spares);
            buffers.extend(returns.try_iter());
        }
        buffers.truncate(BUFFERS);
        buffers
    }
}

#[cfg(test)]
#[path = "batches_tests.rs"]
mod tests;
