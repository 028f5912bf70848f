//! Latent images under a text, for models that find noise.

use std::path::Path;
use std::sync::Arc;

use super::dataset::{Dataset, Split};
use super::error::DataError;
use super::npy::NpyArray;
use crate::models::TIMESTEPS;
use crate::philox::Stream;

/// One item in so many is for testing.
const TEST_SHARE: usize = 10;

/// Latents with noise and a timestep, both drawn anew for every item: inputs
/// `latents`, `noise`, `timesteps` and `context`.
pub struct Latents {
    source: Arc<Source>,
    first: usize,
    items: usize,
    latent: [usize; 3],
    context: [usize; 2],
}

enum Source {
    Files { latents: NpyArray, context: NpyArray },
    Made,
}

impl Latents {
    /// Made-up latents, planes that rise and fall: 256 to learn from and 32 to
    /// be judged by.
    pub fn synthetic(latent: [usize; 3], context: [usize; 2]) -> Split {
        let source = Arc::new(Source::Made);
        let part = |first, items| {
            Arc::new(Latents { source: Arc::clone(&source), first, items, latent, context })
        };
        Split { train: part(0, 256), test: part(256, 32), source: "synthetic latents".into() }
    }

    /// `latents.npy` [items, channels, height, width] and `context.npy` [items,
    /// words, width] of a folder; the last tenth is for testing.
    ///
    /// # Errors
    /// Those of [`NpyArray::open`], and [`DataError::Unusable`] for other
    /// shapes.
    pub fn folder(
        folder: impl AsRef<Path>,
        latent: [usize; 3],
        context: [usize; 2],
    ) -> Result<Split, DataError> {
        let folder = folder.as_ref();
        let latents = NpyArray::open(folder.join("latents.npy"))?;
        let texts = NpyArray::open(folder.join("context.npy"))?;
        let items = latents.shape[0];
        for (array, item) in [(&latents, &latent[..]), (&texts, &context[..])] {
            let mut expected = vec![items];
            expected.extend(item);
            if array.shape != expected {
                let reason = format!("shape {:?}, expected {expected:?}", array.shape);
                return Err(DataError::Unusable { path: array.path.clone(), reason });
            }
        }
        let test = items.div_ceil(TEST_SHARE);
        if items < 2 {
            let reason = "one item; expected two or more, one for testing".into();
            return Err(DataError::Unusable { path: latents.path.clone(), reason });
        }
        let source = Arc::new(Source::Files { latents, context: texts });
        let part = |first, items| {
            Arc::new(Latents { source: Arc::clone(&source), first, items, latent, context })
        };
        Ok(Split {
            train: part(0, items - test),
            test: part(items - test, test),
            source: folder.display().to_string(),
        })
    }
}

impl Dataset for Latents {
    fn items(&self) -> usize {
        self.items
    }

    fn inputs(&self) -> Vec<(&'static str, usize)> {
        let bytes = 4 * self.latent.iter().product::<usize>();
        let context = 4 * self.context.iter().product::<usize>();
        vec![("latents", bytes), ("noise", bytes), ("timesteps", 4), ("context", context)]
    }

    fn item(&self, item: usize, draw: u64, inputs: &mut [&mut [u8]]) {
        let item = self.first + item;
        let mut fill = |input: usize, value: &mut dyn FnMut(usize) -> f32| {
            for (i, to) in inputs[input].chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&value(i).to_ne_bytes());
            }
        };
        let sizes = [self.latent.iter().product::<usize>(), self.context.iter().product()];
        match &*self.source {
            Source::Files { latents, context } => {
                fill(0, &mut |i| latents.float(item * sizes[0] + i));
                fill(3, &mut |i| context.float(item * sizes[1] + i));
            }
            Source::Made => {
                let mut stream = Stream::new(item as u64, 1);
                let (slope, phase) = (stream.uniform(0.1, 1.0), stream.uniform(0.0, 6.0));
                fill(0, &mut |i| (slope * (i % self.latent[2]) as f32 + phase).sin());
                fill(3, &mut |_| stream.normal());
            }
        }
        let mut stream = Stream::new(draw, 0);
        fill(1, &mut |_| stream.normal());
        inputs[2].copy_from_slice(&(stream.below(TIMESTEPS as u32) as i32).to_ne_bytes());
    }
}
