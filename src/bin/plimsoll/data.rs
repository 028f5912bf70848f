//! From a model's name and the flags of sizes and data to the model and its
//! data set.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{RangedU64ValueParser, ValueParser};
use plimsoll::data::{
    CLASSES, LabelledImages, Latents, Patches, Question, Split, TokenWindows, Tokens, TrainTest,
    embedded_sample, image_folder, load_folder,
};
use plimsoll::models::{Domain, Sizes, Zoo, by_name};
use plimsoll::{Error, models};

use crate::failure::Failure;

/// Channels, height and width of the embedded sample of images.
const SAMPLE_IMAGE: [usize; 3] = [1, 28, 28];

/// Data, and sizes in place of those published.
#[derive(Args)]
pub struct DataChoices {
    /// What to train on. Classifiers: a folder with the four IDX files of MNIST's form, raw or
    /// gzipped, or with a folder of images for each class. Text: a file, its bytes being the
    /// tokens, or a .npy file of token numbers. unet: a folder with images and masks. unet3d: a
    /// folder with NAME.npy and NAME.labels.npy. sd-unet: a folder with latents.npy and
    /// context.npy [default: an embedded or made-up sample]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Cut a text into the pieces of this tokenizer.json
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,

    /// Tokens of an item
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    seq: Option<usize>,

    /// Height and width of images or latents: 224 or 224x160
    #[arg(long, value_name = "HxW", value_parser = ValueParser::new(extents::<2>))]
    image: Option<[usize; 2]>,

    /// Depth, height and width of patches: 64 or 32x64x64
    #[arg(long, value_name = "DxHxW", value_parser = ValueParser::new(extents::<3>))]
    volume: Option<[usize; 3]>,

    /// Channels of images or volumes
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    channels: Option<usize>,

    /// Classes to tell apart
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(2..=1 << 20))]
    classes: Option<usize>,
}

fn extents<const N: usize>(text: &str) -> Result<[usize; N], String> {
    let sizes: Vec<usize> = text.split('x').map_while(|s| s.parse().ok()).collect();
    let sizes = if sizes.len() == 1 { sizes.repeat(N) } else { sizes };
    let whole = text.split('x').count() == sizes.len() || text.split('x').count() == 1;
    match <[usize; N]>::try_from(sizes) {
        Ok(sizes) if whole && sizes.iter().all(|s| (1..=1 << 16).contains(s)) => Ok(sizes),
        _ => Err(format!("expected one size or {N} with x between them, such as 32x64")),
    }
}

impl DataChoices {
    fn sizes(&self) -> Sizes {
        Sizes {
            length: self.seq,
            channels: self.channels,
            image: self.image,
            volume: self.volume,
            classes: self.classes,
            vocabulary: None,
        }
    }

    /// The model, and the data if there is any for it.
    pub fn open(&self, name: &str) -> Result<(Zoo, Option<Split>), Failure> {
        let zoo = by_name(name, &self.sizes())?;
        if self.tokenizer.is_some()
            && !matches!(zoo.domain, Domain::Text { .. } | Domain::MaskedText { .. })
        {
            return Err(Failure::Usage(format!(
                "--tokenizer is for text, which {name} does not take"
            )));
        }
        match zoo.domain {
            Domain::Images { image, classes } => self.images(name, zoo, image, classes),
            Domain::Text { length, vocabulary } => self.text(name, zoo, length, vocabulary, false),
            Domain::MaskedText { length, vocabulary } => {
                self.text(name, zoo, length, vocabulary, true)
            }
            Domain::LabelledImages { image, classes } => {
                let data = match &self.data {
                    Some(folder) => LabelledImages::folder(folder, image, classes)?,
                    None => LabelledImages::synthetic(image, classes),
                };
                Ok((zoo, Some(data)))
            }
            Domain::LabelledVolumes { channels, patch, classes } => {
                if channels != 1 {
                    let message = format!("{channels}: volumes are read with one");
                    return Err(Error::Setting { name: "channels", message }.into());
                }
                let data = match &self.data {
                    Some(folder) => Patches::folder(folder, patch, classes)?,
                    None => Patches::synthetic(patch, classes)?,
                };
                Ok((zoo, Some(data)))
            }
            Domain::Latents { latent, context } => {
                let data = match &self.data {
                    Some(folder) => Latents::folder(folder, latent, context)?,
                    None => Latents::synthetic(latent, context),
                };
                Ok((zoo, Some(data)))
            }
        }
    }

    fn images(
        &self,
        name: &str,
        zoo: Zoo,
        image: [usize; 3],
        classes: usize,
    ) -> Result<(Zoo, Option<Split>), Failure> {
        let Some(folder) = &self.data else {
            let fits = image == SAMPLE_IMAGE && classes == CLASSES;
            return Ok((zoo, if fits { Some(embedded_sample()?.into()) } else { None }));
        };
        let data = classified(folder, image)?;
        let found = match data.train.item_shape[..] {
            [channels, height, width] => [channels, height, width],
            _ => [1, data.train.item_shape[0], data.train.item_shape[1]],
        };
        // The model takes what the data has, unless the flags say otherwise.
        let [channels, height, width] = found;
        let differs = [
            self.image.is_some_and(|i| i != [height, width]),
            self.channels.is_some_and(|c| c != channels),
            self.classes.is_some_and(|c| c < data.train.classes),
        ];
        if differs.contains(&true) {
            return Err(Failure::Plimsoll(Error::Input {
                name: "images".into(),
                message: format!(
                    "the images of {} have {channels} channels of {height}×{width} and {} classes; \
                     leave out --image, --channels and --classes, or name another --data",
                    data.source, data.train.classes
                ),
            }));
        }
        let sizes = Sizes {
            channels: Some(channels),
            image: Some([height, width]),
            classes: Some(self.classes.unwrap_or(data.train.classes)),
            ..Sizes::default()
        };
        Ok((by_name(name, &sizes)?, Some(data.into())))
    }

    fn text(
        &self,
        name: &str,
        mut zoo: Zoo,
        length: usize,
        mut vocabulary: usize,
        masked: bool,
    ) -> Result<(Zoo, Option<Split>), Failure> {
        let tokens = match (&self.data, &self.tokenizer) {
            (None, None) => Tokens::sample(),
            (None, Some(_)) => {
                return Err(Failure::Usage(
                    "--tokenizer needs the text to cut: name --data".into(),
                ));
            }
            (Some(text), Some(tokenizer)) => {
                let tokens = Tokens::encode(text, tokenizer)?;
                vocabulary = tokens.vocabulary;
                let sizes = Sizes { vocabulary: Some(vocabulary), ..self.sizes() };
                zoo = by_name(name, &sizes)?;
                tokens
            }
            (Some(path), None) if path.extension().is_some_and(|e| e == "npy") => {
                Tokens::numbers(path, vocabulary)?
            }
            (Some(path), None) => Tokens::bytes(path)?,
        };
        let question = match masked {
            // By default the last token, which no byte is.
            true => {
                Question::Hidden { mask_token: tokens.mask_token.unwrap_or(vocabulary as i32 - 1) }
            }
            false => Question::Next,
        };
        Ok((zoo, Some(TokenWindows::split(tokens, length, question)?)))
    }
}

/// Images in classes: IDX files where the folder has such, else image files.
fn classified(folder: &Path, image: [usize; 3]) -> Result<TrainTest, Failure> {
    let idx = std::fs::read_dir(folder).is_ok_and(|entries| {
        let mut names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        names.any(|n| n.contains("-ubyte"))
    });
    let has_folders =
        std::fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(|e| e.path().is_dir()));
    match !idx && has_folders {
        true => Ok(image_folder(folder, image)?),
        false => Ok(load_folder(folder)?),
    }
}

/// Items of a step by default: those that the data's kind is commonly trained
/// with on one device.
pub fn default_batch(domain: &models::Domain) -> usize {
    match domain {
        Domain::Images { image, .. } if image.iter().product::<usize>() <= 1 << 12 => 256,
        Domain::Images { .. } => 32,
        Domain::Text { .. } | Domain::MaskedText { .. } => 8,
        Domain::LabelledImages { .. } => 4,
        Domain::LabelledVolumes { .. } => 2,
        Domain::Latents { .. } => 4,
    }
}
