//! Volumes whose voxels have classes, read by patch: from `.npy` files, or made
//! up of spheres and tubes.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::dataset::{Dataset, Split};
use super::error::DataError;
use super::npy::NpyArray;
use crate::philox::{Stream, name_stream};

/// One in so many volumes of a folder is for testing.
const TEST_SHARE: usize = 5;
/// End of the names of the files with classes.
const LABELS: &str = ".labels.npy";

/// A volume with the class of every voxel.
pub enum Volume {
    /// Mapped files.
    Files {
        /// Intensities [depth, height, width].
        values: NpyArray,
        /// Classes of the same shape.
        labels: NpyArray,
    },
    /// Made up, in memory.
    Made {
        /// Depth, height and width.
        size: [usize; 3],
        /// Classes, 2 or more.
        classes: usize,
        /// Decides the shapes.
        seed: u64,
        /// Intensities and classes in row-major order, made when first asked
        /// for.
        made: OnceLock<(Vec<f32>, Vec<i32>)>,
    },
}

impl Volume {
    /// Depth, height and width.
    pub fn size(&self) -> [usize; 3] {
        match self {
            Volume::Files { values, .. } => [values.shape[0], values.shape[1], values.shape[2]],
            Volume::Made { size, .. } => *size,
        }
    }

    /// Intensity of a voxel.
    pub fn value(&self, index: usize) -> f32 {
        match self {
            Volume::Files { values, .. } => values.float(index),
            Volume::Made { .. } => self.made().0[index],
        }
    }

    /// Class of a voxel.
    pub fn label(&self, index: usize) -> i32 {
        match self {
            Volume::Files { labels, .. } => labels.integer(index) as i32,
            Volume::Made { .. } => self.made().1[index],
        }
    }

    /// Calls `f` with the number of a voxel in the patch and in the volume, for
    /// every voxel of a patch.
    pub(crate) fn patch(
        &self,
        corner: [usize; 3],
        patch: [usize; 3],
        mut f: impl FnMut(usize, usize),
    ) {
        let [_, height, width] = self.size();
        let mut at = 0;
        for z in corner[0]..corner[0] + patch[0] {
            for y in corner[1]..corner[1] + patch[1] {
                let row = (z * height + y) * width;
                for x in corner[2]..corner[2] + patch[2] {
                    f(at, row + x);
                    at += 1;
                }
            }
        }
    }

    /// The intensities of a patch, appended to `out`.
    pub fn cut(&self, corner: [usize; 3], patch: [usize; 3], out: &mut Vec<f32>) {
        self.patch(corner, patch, |_, index| out.push(self.value(index)));
    }

    /// Spheres and tubes in noise, by a seed. Spheres are of class 1, tubes of
    /// the last of 2 or 3 classes.
    pub fn synthetic(size: [usize; 3], classes: usize, seed: u64) -> Volume {
        Volume::Made { size, classes, seed, made: OnceLock::new() }
    }

    fn made(&self) -> &(Vec<f32>, Vec<i32>) {
        static NOTHING: (Vec<f32>, Vec<i32>) = (Vec::new(), Vec::new());
        match self {
            Volume::Files { .. } => &NOTHING,
            Volume::Made { size, classes, seed, made } => {
                made.get_or_init(|| spheres_and_tubes(*size, *classes, *seed))
            }
        }
    }
}

fn spheres_and_tubes(size: [usize; 3], classes: usize, seed: u64) -> (Vec<f32>, Vec<i32>) {
    let mut stream = Stream::new(seed, name_stream("synthetic volume"));
    let count = size.iter().product();
    let mut labels = vec![0i32; count];
    let least = size[1].min(size[2]) as f32;
    let shapes = 6 + stream.below(4);
    for shape in 0..shapes {
        let mut point = || [0, 1, 2].map(|d| stream.uniform(0.0, size[d] as f32));
        let (a, mut b) = (point(), point());
        let sphere = shape % 2 == 0;
        let radius = match sphere {
            true => stream.uniform(0.1, 0.2) * least,
            false => stream.uniform(0.04, 0.08) * least,
        };
        if sphere {
            b = a;
        }
        let class = if sphere { 1 } else { classes.clamp(2, 3) as i32 - 1 };
        let mut at = 0;
        for z in 0..size[0] {
            for y in 0..size[1] {
                for x in 0..size[2] {
                    let p = [z as f32, y as f32, x as f32];
                    if distance_squared(p, a, b) <= radius * radius {
                        labels[at] = class;
                    }
                    at += 1;
                }
            }
        }
    }
    // Intensity says less than shape: noise is nearly half as strong as contrast.
    let value = |class: &i32| (*class > 0) as u32 as f32 - 0.5 + 0.4 * stream.normal();
    let values = labels.iter().map(value).collect();
    (values, labels)
}

/// Of a point from a segment.
fn distance_squared(p: [f32; 3], a: [f32; 3], b: [f32; 3]) -> f32 {
    let along =
        |u: [f32; 3], v: [f32; 3]| (0..3).map(|d| (u[d] - a[d]) * (v[d] - a[d])).sum::<f32>();
    let length = along(b, b);
    let t = if length == 0.0 { 0.0 } else { (along(p, b) / length).clamp(0.0, 1.0) };
    (0..3).map(|d| (p[d] - a[d] - t * (b[d] - a[d])).powi(2)).sum()
}

/// Patches of volumes: inputs `volumes` and `targets`.
pub struct Patches {
    volumes: Vec<Volume>,
    patch: [usize; 3],
    /// Where patches may be cut, or in which order they cover the volume.
    random: bool,
    /// Volume and number within it of each item.
    items: Vec<(usize, usize)>,
}

impl Patches {
    /// Patches of volumes at least as large: at random places, or side by side
    /// (the last ones overlap others where the patch does not divide).
    ///
    /// # Errors
    /// [`DataError::Inconsistent`] for a volume smaller than the patch.
    pub fn new(
        volumes: Vec<Volume>,
        patch: [usize; 3],
        random: bool,
    ) -> Result<Patches, DataError> {
        let mut items = Vec::new();
        for (v, volume) in volumes.iter().enumerate() {
            let size = volume.size();
            if (0..3).any(|d| patch[d] == 0 || size[d] < patch[d]) {
                let reason = format!(
                    "a volume of {size:?} is smaller than the patch of {patch:?}; name a smaller --volume"
                );
                return Err(DataError::Inconsistent { reason });
            }
            let count: usize = (0..3).map(|d| size[d].div_ceil(patch[d])).product();
            items.extend((0..count).map(|i| (v, i)));
        }
        Ok(Patches { volumes, patch, random, items })
    }

    /// Made-up volumes of twice the patch's size: eight to learn from and two
    /// to be judged by.
    ///
    /// # Errors
    /// Those of [`Patches::new`].
    pub fn synthetic(patch: [usize; 3], classes: usize) -> Result<Split, DataError> {
        let size = patch.map(|s| 2 * s);
        let made = |seeds: std::ops::Range<u64>| {
            seeds.map(|seed| Volume::synthetic(size, classes, seed)).collect()
        };
        Ok(Split {
            train: Arc::new(Patches::new(made(0..8), patch, true)?),
            test: Arc::new(Patches::new(made(8..10), patch, false)?),
            source: "synthetic spheres and tubes".into(),
        })
    }

    /// Volumes of a folder: `NAME.npy` [depth, height, width] with
    /// `NAME.labels.npy` of the same shape. Every fifth, by name, is for
    /// testing.
    ///
    /// # Errors
    /// [`DataError::Open`], and [`DataError::Unusable`] for files that do not
    /// fit together.
    pub fn folder(
        folder: impl AsRef<Path>,
        patch: [usize; 3],
        classes: usize,
    ) -> Result<Split, DataError> {
        let folder = folder.as_ref();
        let open = |source| DataError::Open { path: folder.to_path_buf(), source };
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(folder).map_err(open)? {
            let name = entry.map_err(open)?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(LABELS).map(str::to_string));
        }
        names.sort();
        if names.len() < 2 {
            return Err(DataError::Unusable {
                path: folder.to_path_buf(),
                reason: format!(
                    "{} volumes with classes; expected at least two pairs of NAME.npy and \
                     NAME{LABELS}, one for testing",
                    names.len()
                ),
            });
        }
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for (i, name) in names.iter().enumerate() {
            let values = NpyArray::open(folder.join(format!("{name}.npy")))?;
            let labels = NpyArray::open(folder.join(format!("{name}{LABELS}")))?;
            if values.shape.len() != 3 || values.shape != labels.shape {
                return Err(DataError::Unusable {
                    path: labels.path.clone(),
                    reason: format!(
                        "shape {:?} for a volume of {:?}; expected [depth, height, width] twice",
                        labels.shape, values.shape
                    ),
                });
            }
            labels.expect_below(classes, "classes")?;
            let last = i + 1 == names.len() && test.is_empty();
            let to = if last || i % TEST_SHARE == TEST_SHARE - 1 { &mut test } else { &mut train };
            to.push(Volume::Files { values, labels });
        }
        Ok(Split {
            train: Arc::new(Patches::new(train, patch, true)?),
            test: Arc::new(Patches::new(test, patch, false)?),
            source: folder.display().to_string(),
        })
    }
}

impl Dataset for Patches {
    fn items(&self) -> usize {
        self.items.len()
    }

    fn inputs(&self) -> Vec<(&'static str, usize)> {
        let bytes = 4 * self.patch.iter().product::<usize>();
        vec![("volumes", bytes), ("targets", bytes)]
    }

    fn item(&self, item: usize, draw: u64, inputs: &mut [&mut [u8]]) {
        let (v, number) = self.items[item];
        let volume = &self.volumes[v];
        let room = [0, 1, 2].map(|d| volume.size()[d] - self.patch[d]);
        let mut stream = Stream::new(draw, 0);
        let corner = match self.random {
            true => room.map(|room| stream.below(room as u32 + 1) as usize),
            false => {
                let counts = [0, 1, 2].map(|d| volume.size()[d].div_ceil(self.patch[d]));
                let place = [
                    number / (counts[1] * counts[2]),
                    number / counts[2] % counts[1],
                    number % counts[2],
                ];
                [0, 1, 2].map(|d| (place[d] * self.patch[d]).min(room[d]))
            }
        };
        volume.patch(corner, self.patch, |at, index| {
            let range = 4 * at..4 * at + 4;
            inputs[0][range.clone()].copy_from_slice(&volume.value(index).to_ne_bytes());
            inputs[1][range].copy_from_slice(&volume.label(index).to_ne_bytes());
        });
    }
}
