//! Text as tokens: bytes, the pieces of a tokenizer, or numbers in a file; and
//! windows of them for models that find the next token or hidden ones.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tokenizers::Tokenizer;

use super::dataset::{Dataset, Split};
use super::error::DataError;
use super::npy::NpyArray;
use crate::mapped::Bytes;
use crate::models::IGNORED;
use crate::philox::Stream;

/// The embedded text: Shakespeare's sonnets.
const SAMPLE: &[u8] = include_bytes!("../../demos/char_gpt/data/sonnets.txt");
/// The share of a text that is kept for testing is one in so many.
const TEST_SHARE: usize = 10;
/// Of 100 tokens, those that a masked model is asked for; and of 100 of these
/// those hidden, and those replaced by another (J. Devlin et al., "BERT",
/// 2018).
const MASKED_PERCENT: u32 = 15;
const HIDDEN_PERCENT: u32 = 80;
const REPLACED_PERCENT: u32 = 10;

/// A text as numbers.
#[derive(Debug)]
pub struct Tokens {
    source: Source,
    /// Tokens that there are: all are below.
    pub vocabulary: usize,
    /// The token that hides others, if the tokenizer has one.
    pub mask_token: Option<i32>,
    /// Where the text comes from, for people to read.
    pub name: String,
}

#[derive(Debug)]
enum Source {
    Bytes(Bytes),
    Array(NpyArray),
    Encoded(Vec<i32>),
}

impl Tokens {
    /// The embedded text as bytes.
    pub fn sample() -> Tokens {
        let name = "embedded sonnets of Shakespeare".into();
        let source = Source::Bytes(Bytes::Static(SAMPLE));
        Tokens { source, vocabulary: 256, mask_token: None, name }
    }

    /// A file as bytes, mapped into memory.
    ///
    /// # Errors
    /// [`DataError::Open`].
    pub fn bytes(path: impl AsRef<Path>) -> Result<Tokens, DataError> {
        let path = path.as_ref();
        let bytes = Bytes::map(path)
            .map_err(|source| DataError::Open { path: path.to_path_buf(), source })?;
        let (source, name) = (Source::Bytes(bytes), path.display().to_string());
        Ok(Tokens { source, vocabulary: 256, mask_token: None, name })
    }

    /// Token numbers of a `.npy` file, mapped into memory, all below
    /// `vocabulary`.
    ///
    /// # Errors
    /// Those of [`NpyArray::open`], and [`DataError::Unusable`] for numbers
    /// outside the vocabulary.
    pub fn numbers(path: impl AsRef<Path>, vocabulary: usize) -> Result<Tokens, DataError> {
        let array = NpyArray::open(path)?;
        array.expect_below(vocabulary, "tokens")?;
        let name = array.path.display().to_string();
        Ok(Tokens { source: Source::Array(array), vocabulary, mask_token: None, name })
    }

    /// A text file cut into the pieces of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`DataError::Open`], and [`DataError::Unusable`] for a text that is not
    /// UTF-8 and a tokenizer that cannot be read or fails.
    pub fn encode(
        path: impl AsRef<Path>,
        tokenizer: impl AsRef<Path>,
    ) -> Result<Tokens, DataError> {
        let (path, tokenizer) = (path.as_ref(), tokenizer.as_ref());
        let fail =
            |path: &Path, reason: String| DataError::Unusable { path: path.to_path_buf(), reason };
        let pieces = Tokenizer::from_file(tokenizer).map_err(|e| {
            fail(tokenizer, format!("{e}; expected a tokenizer.json of Hugging Face's tokenizers"))
        })?;
        let text = fs::read(path)
            .map_err(|source| DataError::Open { path: path.to_path_buf(), source })?;
        let text = String::from_utf8(text)
            .map_err(|e| fail(path, format!("{e}; expected text in UTF-8")))?;
        let encoding = pieces
            .encode_fast(text, false)
            .map_err(|e| fail(path, format!("the tokenizer fails: {e}")))?;
        let encoded = encoding.get_ids().iter().map(|id| *id as i32).collect();
        let mask_token = ["[MASK]", "<mask>"].iter().find_map(|t| pieces.token_to_id(t));
        let largest = encoding.get_ids().iter().max().map_or(0, |id| *id as usize + 1);
        Ok(Tokens {
            source: Source::Encoded(encoded),
            vocabulary: pieces.get_vocab_size(true).max(largest),
            mask_token: mask_token.map(|id| id as i32),
            name: path.display().to_string(),
        })
    }

    /// The number of tokens.
    pub fn count(&self) -> usize {
        match &self.source {
            Source::Bytes(bytes) => bytes.len(),
            Source::Array(array) => array.count(),
            Source::Encoded(ids) => ids.len(),
        }
    }

    /// Token `index`.
    pub fn token(&self, index: usize) -> i32 {
        match &self.source {
            Source::Bytes(bytes) => bytes[index].into(),
            Source::Array(array) => array.integer(index) as i32,
            Source::Encoded(ids) => ids[index],
        }
    }
}

/// What is asked of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The token behind each: inputs `tokens` and `targets`.
    Next,
    /// Some of its tokens, hidden by this one or replaced: inputs `tokens`,
    /// `targets` and `mask`.
    Hidden {
        /// What hides.
        mask_token: i32,
    },
}

/// Windows of one length, side by side, of a part of a text.
#[derive(Clone, Debug)]
pub struct TokenWindows {
    tokens: Arc<Tokens>,
    part: Range<usize>,
    length: usize,
    question: Question,
}

impl TokenWindows {
    /// Windows over the first nine tenths of a text to learn from, and over
    /// the rest.
    ///
    /// # Errors
    /// [`DataError::Unusable`] for a text too short for one window each.
    pub fn split(tokens: Tokens, length: usize, question: Question) -> Result<Split, DataError> {
        let source = format!("{}: {} tokens", tokens.name, tokens.count());
        let (train, test) = TokenWindows::parts(tokens, length, question)?;
        Ok(Split { train: Arc::new(train), test: Arc::new(test), source })
    }

    /// [`TokenWindows::split`], as windows.
    ///
    /// # Errors
    /// The same.
    pub fn parts(
        tokens: Tokens,
        length: usize,
        question: Question,
    ) -> Result<(TokenWindows, TokenWindows), DataError> {
        let (count, name) = (tokens.count(), tokens.name.clone());
        let cut = count - count / TEST_SHARE;
        let tokens = Arc::new(tokens);
        let windows = |part: Range<usize>| TokenWindows {
            tokens: Arc::clone(&tokens),
            part,
            length,
            question,
        };
        let (train, test) = (windows(0..cut), windows(cut..count));
        if train.items().min(test.items()) == 0 {
            return Err(DataError::Unusable {
                path: name.into(),
                reason: format!(
                    "{count} tokens, of which one in {TEST_SHARE} is for testing, are too few for \
                     windows of {length}; name a longer text or a smaller --seq"
                ),
            });
        }
        Ok((train, test))
    }

    /// All tokens of the part.
    pub fn tokens(&self) -> impl Iterator<Item = i32> + '_ {
        self.part.clone().map(|i| self.tokens.token(i))
    }
}

impl Dataset for TokenWindows {
    fn items(&self) -> usize {
        // A window needs the token behind it.
        self.part.len().saturating_sub(1) / self.length.max(1)
    }

    fn inputs(&self) -> Vec<(&'static str, usize)> {
        let bytes = 4 * self.length;
        let mut inputs = vec![("tokens", bytes), ("targets", bytes)];
        if let Question::Hidden { .. } = self.question {
            inputs.push(("mask", bytes));
        }
        inputs
    }

    fn item(&self, item: usize, draw: u64, inputs: &mut [&mut [u8]]) {
        let first = self.part.start + item * self.length;
        let mut put = |input: usize, i: usize, value: i32| {
            inputs[input][4 * i..4 * i + 4].copy_from_slice(&value.to_ne_bytes());
        };
        let mut stream = Stream::new(draw, 0);
        for i in 0..self.length {
            let token = self.tokens.token(first + i);
            match self.question {
                Question::Next => {
                    put(0, i, token);
                    put(1, i, self.tokens.token(first + i + 1));
                }
                Question::Hidden { mask_token } => {
                    put(2, i, 1);
                    if stream.below(100) >= MASKED_PERCENT {
                        put(0, i, token);
                        put(1, i, IGNORED);
                        continue;
                    }
                    let shown = match stream.below(100) {
                        p if p < HIDDEN_PERCENT => mask_token,
                        p if p < HIDDEN_PERCENT + REPLACED_PERCENT => {
                            stream.below(self.tokens.vocabulary as u32) as i32
                        }
                        _ => token,
                    };
                    put(0, i, shown);
                    put(1, i, token);
                }
            }
        }
    }
}

/// The mean loss, in nats a token, that a table of pairs of neighbours counted
/// in `train` has on `test`, each count begun at 1 (Laplace): what a model of
/// text must beat to have learned more than that.
pub fn bigram_loss(train: &TokenWindows, test: &TokenWindows) -> f64 {
    let vocabulary = train.tokens.vocabulary;
    let mut pairs = std::collections::BTreeMap::<(i32, i32), f64>::new();
    let mut firsts = vec![0.0; vocabulary];
    let neighbours = |w: &TokenWindows| w.tokens().zip(w.tokens().skip(1)).collect::<Vec<_>>();
    for pair in neighbours(train) {
        *pairs.entry(pair).or_default() += 1.0;
        firsts[pair.0 as usize] += 1.0;
    }
    let test = neighbours(test);
    let loss = |pair: &(i32, i32)| {
        let seen = pairs.get(pair).copied().unwrap_or_default() + 1.0;
        ((firsts[pair.0 as usize] + vocabulary as f64) / seen).ln()
    };
    test.iter().map(loss).sum::<f64>() / test.len().max(1) as f64
}
