//! What a data set is to whoever trains on it: items by number, each a row of
//! every input of a model.

use std::sync::Arc;

use super::error::DataError;
use super::shuffle::item_draw;

/// Numbered items that give rows of named inputs.
///
/// A thread calls it ahead of the trainer, so that an item may be computed or
/// read from a file.
pub trait Dataset: Send + Sync {
    /// The number of items, at least 1 and below 2³².
    fn items(&self) -> usize;

    /// Names of the inputs and the bytes of one item of each.
    fn inputs(&self) -> Vec<(&'static str, usize)>;

    /// Writes an item into one slice an input, of the lengths that
    /// [`inputs`](Self::inputs) gives. `draw` is random bits for what an item
    /// leaves to chance (which tokens are hidden, where a patch is cut); the
    /// same bits give the same item.
    fn item(&self, item: usize, draw: u64, inputs: &mut [&mut [u8]]);

    /// Checks what can be wrong before any item is asked for.
    ///
    /// # Errors
    /// Whatever makes the data set unusable.
    fn check(&self) -> Result<(), DataError> {
        match self.items() {
            0 => Err(DataError::NoItems),
            items if u32::try_from(items).is_err() => Err(DataError::Inconsistent {
                reason: format!("{items} items, more than 4,294,967,295; split it"),
            }),
            _ => Ok(()),
        }
    }
}

/// A data set to learn from and one to be judged by.
#[derive(Clone)]
pub struct Split {
    /// What a model learns from.
    pub train: Arc<dyn Dataset>,
    /// What it is judged by.
    pub test: Arc<dyn Dataset>,
    /// Where the data comes from, for people to read.
    pub source: String,
}

/// Some items of a data set, next to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Items {
    /// Names of the inputs and their rows.
    pub inputs: Vec<(&'static str, Vec<u8>)>,
    /// The number of items.
    pub count: usize,
}

impl Items {
    /// The rows, as a trainer takes them.
    pub fn batch(&self) -> crate::Batch<'_> {
        self.inputs.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect()
    }

    /// Replaces the content by the chosen items under a seed and an epoch.
    pub(crate) fn fill(&mut self, dataset: &dyn Dataset, chosen: &[u32], seed: u64, epoch: u64) {
        let kinds = dataset.inputs();
        self.inputs.resize_with(kinds.len(), Default::default);
        for ((name, bytes), (of, size)) in self.inputs.iter_mut().zip(&kinds) {
            *name = of;
            bytes.resize(size * chosen.len(), 0);
        }
        let mut rows: Vec<_> = self
            .inputs
            .iter_mut()
            .zip(&kinds)
            .map(|((_, bytes), (_, size))| bytes.chunks_exact_mut(*size))
            .collect();
        for item in chosen {
            let mut row: Vec<&mut [u8]> = rows.iter_mut().filter_map(Iterator::next).collect();
            dataset.item(*item as usize, item_draw(seed, epoch, *item), &mut row);
        }
        self.count = chosen.len();
    }
}
