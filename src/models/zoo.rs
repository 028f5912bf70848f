//! Models by the names of the command line.

use super::{Bert, Gpt2, LeNet, Llama, Mlp, ResNet, SdUnet, Unet, Vit};
use crate::{Error, Model, Result};

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 22] = [
    "mlp",
    "lenet",
    "resnet18",
    "resnet50",
    "resnet-tiny",
    "vit-b16",
    "vit-tiny",
    "bert-base",
    "bert-tiny",
    "albert-base",
    "albert-tiny",
    "gpt2",
    "gpt2-medium",
    "gpt2-tiny",
    "llama-1.1b",
    "llama-tiny",
    "unet",
    "unet-tiny",
    "unet3d",
    "unet3d-tiny",
    "sd-unet",
    "sd-unet-tiny",
];

/// Sizes in place of those published; what a model lacks must not be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Tokens of an item.
    pub length: Option<usize>,
    /// Channels of an image or a volume.
    pub channels: Option<usize>,
    /// Height and width.
    pub image: Option<[usize; 2]>,
    /// Depth, height and width.
    pub volume: Option<[usize; 3]>,
    /// Classes.
    pub classes: Option<usize>,
    /// Tokens that there are.
    pub vocabulary: Option<usize>,
}

/// What a model is trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Images in classes: channels, height and width.
    Images {
        /// Channels, height and width.
        image: [usize; 3],
        /// Classes.
        classes: usize,
    },
    /// Text, to find the next token.
    Text {
        /// Tokens that there are.
        vocabulary: usize,
        /// Tokens of an item.
        length: usize,
    },
    /// Text, to find tokens that were hidden.
    MaskedText {
        /// Tokens that there are.
        vocabulary: usize,
        /// Tokens of an item.
        length: usize,
    },
    /// Images whose pixels have classes.
    LabelledImages {
        /// Channels, height and width.
        image: [usize; 3],
        /// Classes.
        classes: usize,
    },
    /// Volumes whose voxels have classes.
    LabelledVolumes {
        /// Channels.
        channels: usize,
        /// Depth, height and width of a patch.
        patch: [usize; 3],
        /// Classes.
        classes: usize,
    },
    /// Latent images with noise and a text.
    Latents {
        /// Channels, height and width.
        latent: [usize; 3],
        /// Words of the text and width of its encoder.
        context: [usize; 2],
    },
}

/// A model of the zoo.
pub struct Zoo {
    /// The model.
    pub model: Box<dyn Model>,
    /// What it is trained on.
    pub domain: Domain,
}

impl Zoo {
    fn new(model: impl Model + 'static, domain: Domain) -> Zoo {
        Zoo { model: Box::new(model), domain }
    }
}

/// A model of the zoo at its published size, less what `sizes` replaces.
///
/// # Errors
/// A name that is not in [`NAMES`], and sizes of something that the model does
/// not have.
pub fn by_name(name: &str, sizes: &Sizes) -> Result<Zoo> {
    let mut sizes = sizes.clone();
    let zoo = match name {
        "mlp" => {
            let (image, classes) = sizes.classifier([1, 28, 28], 10);
            let [_, first, second, _] = Mlp::FASHION_MNIST;
            let mlp = Mlp::new(&[image.iter().product(), first, second, classes])?;
            Zoo::new(mlp, Domain::Images { image, classes })
        }
        "lenet" => {
            let (image, classes) = sizes.classifier(LeNet::MNIST.image, LeNet::MNIST.classes);
            Zoo::new(LeNet { image, classes }, Domain::Images { image, classes })
        }
        "resnet18" => resnet(ResNet::resnet18(), &mut sizes),
        "resnet50" => resnet(ResNet::resnet50(), &mut sizes),
        "resnet-tiny" => resnet(ResNet::tiny(), &mut sizes),
        "vit-b16" => vit(Vit::B16, &mut sizes),
        "vit-tiny" => vit(Vit::TINY, &mut sizes),
        "bert-base" => bert(Bert::BASE, &mut sizes),
        "bert-tiny" => bert(Bert::TINY, &mut sizes),
        "albert-base" => bert(Bert::ALBERT_BASE, &mut sizes),
        "albert-tiny" => bert(Bert::ALBERT_TINY, &mut sizes),
        "gpt2" => gpt2(Gpt2::SMALL, &mut sizes),
        "gpt2-medium" => gpt2(Gpt2::MEDIUM, &mut sizes),
        "gpt2-tiny" => gpt2(Gpt2::TINY, &mut sizes),
        "llama-1.1b" => llama(Llama::B1, &mut sizes),
        "llama-tiny" => llama(Llama::TINY, &mut sizes),
        "unet" => unet(Unet::images(), &mut sizes),
        "unet-tiny" => unet(Unet::tiny(), &mut sizes),
        "unet3d" => unet3d(Unet::volumes(), &mut sizes),
        "unet3d-tiny" => unet3d(Unet::volumes_tiny(), &mut sizes),
        "sd-unet" => sd_unet(SdUnet::v1(), &mut sizes),
        "sd-unet-tiny" => sd_unet(SdUnet::tiny(), &mut sizes),
        _ => {
            let message = format!("there is no {name}; expected one of {}", NAMES.join(", "));
            return Err(Error::Setting { name: "model", message });
        }
    };
    sizes.assert_none_left(name)?;
    Ok(zoo)
}

impl Sizes {
    /// Takes the sizes of a classifier's images: channels, height and width.
    fn classifier(&mut self, image: [usize; 3], classes: usize) -> ([usize; 3], usize) {
        (self.picture(image), self.classes.take().unwrap_or(classes))
    }

    fn picture(&mut self, [channels, height, width]: [usize; 3]) -> [usize; 3] {
        let [height, width] = self.image.take().unwrap_or([height, width]);
        [self.channels.take().unwrap_or(channels), height, width]
    }

    fn assert_none_left(&self, model: &str) -> Result<()> {
        let Sizes { length, channels, image, volume, classes, vocabulary } = self;
        let left = [
            ("seq", length.is_some(), "tokens"),
            ("image", image.is_some(), "images of a size to choose"),
            ("volume", volume.is_some(), "volumes"),
            ("channels", channels.is_some(), "channels to choose"),
            ("classes", classes.is_some(), "classes to choose"),
            ("vocabulary", vocabulary.is_some(), "tokens"),
        ];
        match left.into_iter().find(|(_, given, _)| *given) {
            None => Ok(()),
            Some((name, _, what)) => {
                Err(Error::Setting { name, message: format!("{model} has no {what}") })
            }
        }
    }
}

fn resnet(net: ResNet, sizes: &mut Sizes) -> Zoo {
    let (image, classes) = sizes.classifier(net.image, net.classes);
    Zoo::new(ResNet { image, classes, ..net }, Domain::Images { image, classes })
}

fn vit(net: Vit, sizes: &mut Sizes) -> Zoo {
    let (image, classes) = sizes.classifier(net.image, net.classes);
    Zoo::new(Vit { image, classes, ..net }, Domain::Images { image, classes })
}

fn bert(net: Bert, sizes: &mut Sizes) -> Zoo {
    let length = sizes.length.take().unwrap_or(net.length);
    let vocabulary = sizes.vocabulary.take().unwrap_or(net.vocabulary);
    Zoo::new(Bert { length, vocabulary, ..net }, Domain::MaskedText { vocabulary, length })
}

fn gpt2(net: Gpt2, sizes: &mut Sizes) -> Zoo {
    let length = sizes.length.take().unwrap_or(net.length);
    let vocabulary = sizes.vocabulary.take().unwrap_or(net.vocabulary);
    Zoo::new(Gpt2 { length, vocabulary, ..net }, Domain::Text { vocabulary, length })
}

fn llama(net: Llama, sizes: &mut Sizes) -> Zoo {
    let length = sizes.length.take().unwrap_or(net.length);
    let vocabulary = sizes.vocabulary.take().unwrap_or(net.vocabulary);
    Zoo::new(Llama { length, vocabulary, ..net }, Domain::Text { vocabulary, length })
}

fn unet(net: Unet, sizes: &mut Sizes) -> Zoo {
    let (image, classes) = sizes.classifier([net.channels, net.size[0], net.size[1]], net.classes);
    let [channels, height, width] = image;
    let model = Unet { channels, size: vec![height, width], classes, ..net };
    Zoo::new(model, Domain::LabelledImages { image, classes })
}

fn unet3d(net: Unet, sizes: &mut Sizes) -> Zoo {
    let patch = sizes.volume.take().unwrap_or([net.size[0], net.size[1], net.size[2]]);
    let channels = sizes.channels.take().unwrap_or(net.channels);
    let classes = sizes.classes.take().unwrap_or(net.classes);
    let model = Unet { channels, size: patch.to_vec(), classes, ..net };
    Zoo::new(model, Domain::LabelledVolumes { channels, patch, classes })
}

fn sd_unet(net: SdUnet, sizes: &mut Sizes) -> Zoo {
    let (latent, context) = (sizes.picture(net.latent), net.context);
    Zoo::new(SdUnet { latent, ..net }, Domain::Latents { latent, context })
}
