//! Images of files (PNG, JPEG): in a folder for each class, or with a mask that
//! gives every pixel its class.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::DynamicImage;
use image::imageops::FilterType;

use super::dataset::{Dataset, Split};
use super::error::DataError;
use super::images::{ImageDataset, TrainTest};
use crate::philox::{Stream, name_stream};

/// Where a folder has no part for testing, one file in so many is for it.
const TEST_SHARE: usize = 10;
/// Names of the part for testing.
const TEST_FOLDERS: [&str; 3] = ["test", "val", "validation"];

fn unusable(path: &Path, reason: impl Into<String>) -> DataError {
    DataError::Unusable { path: path.to_path_buf(), reason: reason.into() }
}

/// Folders or files within a folder, by name.
fn entries(folder: &Path, folders: bool) -> Result<Vec<PathBuf>, DataError> {
    let open = |source: io::Error| DataError::Open { path: folder.to_path_buf(), source };
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).map_err(open)? {
        let path = entry.map_err(open)?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.is_dir() == folders && !hidden {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

fn open(path: &Path) -> Result<DynamicImage, DataError> {
    let reader = image::ImageReader::open(path)
        .and_then(image::ImageReader::with_guessed_format)
        .map_err(|source| DataError::Open { path: path.to_path_buf(), source })?;
    reader.decode().map_err(|e| unusable(path, format!("{e}; expected a PNG or JPEG image")))
}

/// The file's pixels [channels, height, width], resized.
fn pixels(path: &Path, [channels, height, width]: [usize; 3]) -> Result<Vec<u8>, DataError> {
    let picture = open(path)?.resize_exact(width as u32, height as u32, FilterType::Triangle);
    match channels {
        1 => Ok(picture.into_luma8().into_raw()),
        3 => {
            let interleaved = picture.into_rgb8().into_raw();
            let plane = |c: usize| interleaved.iter().skip(c).step_by(3).copied();
            Ok((0..3).flat_map(plane).collect())
        }
        _ => Err(unusable(path, format!("images of {channels} channels: expected 1 or 3"))),
    }
}

/// Images of a folder with a folder for each class, resized to channels, height
/// and width. The classes stand in `train` and in `test`, `val` or
/// `validation`, or in the folder itself, where every tenth file of a class is
/// for testing.
///
/// # Errors
/// [`DataError::Open`], and [`DataError::Unusable`] for a folder of another
/// form or a file that is no image.
pub fn image_folder(folder: impl AsRef<Path>, image: [usize; 3]) -> Result<TrainTest, DataError> {
    let folder = folder.as_ref();
    let train = folder.join("train");
    let parted = train.is_dir();
    let classes = entries(if parted { &train } else { folder }, true)?;
    if classes.len() < 2 {
        return Err(unusable(
            folder,
            "expected the IDX files of MNIST's form, or a folder for each class with its images, \
             within train and test or without them",
        ));
    }
    let names: Vec<_> = classes.iter().filter_map(|c| c.file_name()).collect();
    let empty = || ImageDataset {
        images: Vec::new(),
        labels: Vec::new(),
        item_shape: image.to_vec(),
        classes: classes.len(),
    };
    let (mut learn, mut judge) = (empty(), empty());
    let add = |set: &mut ImageDataset, path: &Path, class: usize| {
        set.images.extend(pixels(path, image)?);
        set.labels.push(class as i32);
        Ok::<(), DataError>(())
    };
    for (class, path) in classes.iter().enumerate() {
        for (i, file) in entries(path, false)?.iter().enumerate() {
            let test = !parted && i % TEST_SHARE == TEST_SHARE - 1;
            add(if test { &mut judge } else { &mut learn }, file, class)?;
        }
    }
    if parted {
        let Some(test) = TEST_FOLDERS.iter().map(|n| folder.join(n)).find(|p| p.is_dir()) else {
            let reason = format!("has train, but none of {}", TEST_FOLDERS.join(", "));
            return Err(unusable(folder, reason));
        };
        for path in entries(&test, true)? {
            let Some(class) = names.iter().position(|n| Some(*n) == path.file_name()) else {
                return Err(unusable(&path, "is no class of train"));
            };
            for file in entries(&path, false)? {
                add(&mut judge, &file, class)?;
            }
        }
    }
    for (set, what) in [(&learn, "training"), (&judge, "testing")] {
        if set.labels.is_empty() {
            return Err(unusable(folder, format!("no image for {what}")));
        }
    }
    Ok(TrainTest { train: learn, test: judge, source: folder.display().to_string() })
}

/// Images whose pixels have classes: inputs `images` and `targets`.
pub struct LabelledImages {
    image: [usize; 3],
    pictures: Pictures,
}

enum Pictures {
    Files(Vec<(Vec<u8>, Vec<u8>)>),
    /// Discs in noise: how many pictures, classes, seed.
    Made(usize, usize, u64),
}

impl LabelledImages {
    /// Made-up pictures of discs, whose brightness gives their class: 256 to
    /// learn from and 64 to be judged by.
    pub fn synthetic(image: [usize; 3], classes: usize) -> Split {
        let made = |count, seed| {
            Arc::new(LabelledImages { image, pictures: Pictures::Made(count, classes, seed) })
        };
        Split { train: made(256, 0), test: made(64, 1), source: "synthetic discs".into() }
    }

    /// Pictures of `images` and, under the same name up to the ending, `masks`
    /// within a folder, resized. A mask's grey value is the class; for two
    /// classes, any but 0 is the second. Every tenth is for testing.
    ///
    /// # Errors
    /// [`DataError::Open`], and [`DataError::Unusable`] for files that do not
    /// fit together.
    pub fn folder(
        folder: impl AsRef<Path>,
        image: [usize; 3],
        classes: usize,
    ) -> Result<Split, DataError> {
        let folder = folder.as_ref();
        let masks = entries(&folder.join("masks"), false)?;
        let files = entries(&folder.join("images"), false)?;
        if files.len() < 2 {
            return Err(unusable(folder, "expected at least two files in images and masks"));
        }
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for (i, path) in files.iter().enumerate() {
            let Some(mask) = masks.iter().find(|m| m.file_stem() == path.file_stem()) else {
                return Err(unusable(path, "has no mask of its name in masks"));
            };
            let last = i + 1 == files.len() && test.is_empty();
            let judge = last || i % TEST_SHARE == TEST_SHARE - 1;
            let pair = (pixels(path, image)?, mask_of(mask, image, classes)?);
            if judge { &mut test } else { &mut train }.push(pair);
        }
        let set = |pairs| Arc::new(LabelledImages { image, pictures: Pictures::Files(pairs) });
        Ok(Split { train: set(train), test: set(test), source: folder.display().to_string() })
    }
}

fn mask_of(path: &Path, image: [usize; 3], classes: usize) -> Result<Vec<u8>, DataError> {
    let [_, height, width] = image;
    let mask = open(path)?.resize_exact(width as u32, height as u32, FilterType::Nearest);
    let mut values = mask.into_luma8().into_raw();
    if classes == 2 {
        values.iter_mut().for_each(|v| *v = u8::from(*v > 0));
    }
    match values.iter().find(|v| usize::from(**v) >= classes) {
        None => Ok(values),
        Some(v) => {
            let reason = format!("grey value {v}; expected classes from 0 to {}", classes - 1);
            Err(unusable(path, reason))
        }
    }
}

impl Dataset for LabelledImages {
    fn items(&self) -> usize {
        match &self.pictures {
            Pictures::Files(pairs) => pairs.len(),
            Pictures::Made(count, ..) => *count,
        }
    }

    fn inputs(&self) -> Vec<(&'static str, usize)> {
        let [channels, height, width] = self.image;
        vec![("images", channels * height * width), ("targets", 4 * height * width)]
    }

    fn item(&self, item: usize, _draw: u64, inputs: &mut [&mut [u8]]) {
        let drawn;
        let (pixels, classes) = match &self.pictures {
            Pictures::Files(pairs) => (&pairs[item].0, &pairs[item].1),
            Pictures::Made(_, classes, seed) => {
                drawn = discs(self.image, *classes, *seed, item);
                (&drawn.0, &drawn.1)
            }
        };
        inputs[0].copy_from_slice(pixels);
        for (to, class) in inputs[1].chunks_exact_mut(4).zip(classes) {
            to.copy_from_slice(&i32::from(*class).to_ne_bytes());
        }
    }
}

/// A picture of discs in noise, and the class of every pixel.
fn discs(image: [usize; 3], classes: usize, seed: u64, item: usize) -> (Vec<u8>, Vec<u8>) {
    let [channels, height, width] = image;
    let stream = name_stream("synthetic discs").wrapping_add(item as u32);
    let mut stream = Stream::new(seed, stream);
    let mut labels = vec![0u8; height * width];
    for _ in 0..2 + stream.below(3) {
        let (y, x) = (stream.uniform(0.0, height as f32), stream.uniform(0.0, width as f32));
        let radius = stream.uniform(0.1, 0.25) * height.min(width) as f32;
        let class = 1 + stream.below(classes.clamp(2, 256) as u32 - 1) as u8;
        for (at, label) in labels.iter_mut().enumerate() {
            let (dy, dx) = ((at / width) as f32 - y, (at % width) as f32 - x);
            if dy * dy + dx * dx <= radius * radius {
                *label = class;
            }
        }
    }
    let steps = classes.max(2) as f32 - 1.0;
    let mut pixels = Vec::with_capacity(channels * labels.len());
    for _ in 0..channels {
        let value = |label: &u8| 64.0 + 128.0 * f32::from(*label) / steps + 30.0 * stream.normal();
        pixels.extend(labels.iter().map(value).map(|v| v.clamp(0.0, 255.0) as u8));
    }
    (pixels, labels)
}
