//! From the names in a file to the names of a model.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::WeightsError;

/// Where a tensor of a file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the model's tensor of this name.
    Tensor {
        /// The model's name.
        name: String,
        /// Whether the file stores the matrix as `[in, out]` where the model
        /// has `[out, in]`.
        transpose: bool,
    },
    /// Nowhere.
    Ignored,
}

/// Maps the names in a file to those of a model.
///
/// The steps are: a prefix is taken off; the first rule whose pattern fits
/// renames; a name that the model does not have is passed over if a pattern
/// says that it may be; others keep their name. In patterns `*` stands for any
/// text, dots included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameMap {
    prefix: Option<String>,
    rules: Vec<Rule>,
    /// Passed over where the model lacks them.
    optional: Vec<String>,
    transposed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    from: String,
    /// `None` ignores.
    to: Option<String>,
    transpose: bool,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

impl NameMap {
    /// Every name stays as it is; nothing is ignored.
    pub fn identity() -> NameMap {
        NameMap::default()
    }

    /// GPT-2 as Hugging Face publishes it, for a model that names its weights
    /// alike but stores matrices as `[out, in]`: the file's `Conv1D` layers
    /// have `[in, out]`. The prefix `transformer.` may be there or not; the
    /// masks in the files, and the output layer that shares the embedding's
    /// weights, are passed over.
    pub fn hugging_face_gpt2() -> NameMap {
        NameMap {
            prefix: Some("transformer.".into()),
            optional: texts(&["lm_head.weight", "h.*.attn.bias", "h.*.attn.masked_bias"]),
            transposed: texts(&[
                "h.*.attn.c_attn.weight",
                "h.*.attn.c_proj.weight",
                "h.*.mlp.c_fc.weight",
                "h.*.mlp.c_proj.weight",
            ]),
            ..NameMap::default()
        }
    }

    /// BERT as Hugging Face publishes it. The prefix `bert.` may be there or
    /// not, layer norms may have their old names `gamma` and `beta`; the heads
    /// (`cls.*`), the pooler and the position numbers are passed over where
    /// the model has none.
    pub fn hugging_face_bert() -> NameMap {
        let rename = |from: &str, to: &str| Rule {
            from: format!("*LayerNorm.{from}"),
            to: Some(format!("*LayerNorm.{to}")),
            transpose: false,
        };
        NameMap {
            prefix: Some("bert.".into()),
            rules: vec![rename("gamma", "weight"), rename("beta", "bias")],
            optional: texts(&["embeddings.position_ids", "cls.*", "pooler.*"]),
            ..NameMap::default()
        }
    }

    /// ALBERT as Hugging Face publishes it, on the terms of BERT.
    pub fn hugging_face_albert() -> NameMap {
        NameMap {
            prefix: Some("albert.".into()),
            optional: texts(&[
                "embeddings.position_ids",
                "predictions.*",
                "pooler.*",
                "sop_classifier.*",
            ]),
            ..NameMap::default()
        }
    }

    /// The map for the published weights of a model of the zoo, by its name.
    pub fn published(model: &str) -> NameMap {
        match model.split('-').next() {
            Some("gpt2") => NameMap::hugging_face_gpt2(),
            Some("bert") => NameMap::hugging_face_bert(),
            Some("albert") => NameMap::hugging_face_albert(),
            _ => NameMap::torchvision(),
        }
    }

    /// Models of torchvision and those named as in PyTorch, whose batch norms count the batches that they
    /// have seen: the counts are passed over.
    pub fn torchvision() -> NameMap {
        NameMap { optional: texts(&["*num_batches_tracked"]), ..NameMap::default() }
    }

    /// Reads a JSON object from names or patterns in the file to names in the
    /// model: `{"encoder.*.w": "layers.*.weight", "step": null}`.
    ///
    /// The first `*` of the target stands for what the first `*` of the
    /// pattern met, and so on. `null` ignores the tensor. An object
    /// `{"name": "fc.weight", "transpose": true}` transposes a matrix too. A
    /// name without a rule stays as it is. The pattern with the most letters
    /// besides `*` wins.
    ///
    /// # Errors
    /// [`WeightsError::Open`] and [`WeightsError::Names`].
    pub fn from_json_file(path: impl AsRef<Path>) -> Result<NameMap, WeightsError> {
        let path = path.as_ref();
        let wrong = |reason: String| WeightsError::Names { path: path.to_path_buf(), reason };
        let text = fs::read_to_string(path)
            .map_err(|source| WeightsError::Open { path: PathBuf::from(path), source })?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|e| wrong(format!("{e}; expected a JSON object of names")))?;
        let Value::Object(object) = value else {
            return Err(wrong("expected a JSON object of names".into()));
        };
        let mut rules = Vec::new();
        for (from, to) in object {
            let (to, transpose) = match to {
                Value::Null => (None, false),
                Value::String(name) => (Some(name), false),
                Value::Object(mut fields) => {
                    let name = fields.remove("name");
                    let transpose = fields.remove("transpose").unwrap_or(Value::Bool(false));
                    match (name, transpose, fields.is_empty()) {
                        (Some(Value::String(name)), Value::Bool(t), true) => (Some(name), t),
                        _ => {
                            return Err(wrong(format!(
                                "the target of {from:?} should have a text \"name\" and perhaps \
                                 a truth value \"transpose\""
                            )));
                        }
                    }
                }
                other => {
                    let message = format!(
                        "the target of {from:?} is {other}; expected a name, null or an object"
                    );
                    return Err(wrong(message));
                }
            };
            let stars = |text: &str| text.matches('*').count();
            if let Some(to) = to.as_ref().filter(|to| stars(to) > stars(&from)) {
                return Err(wrong(format!("{to:?} has more * than its pattern {from:?}")));
            }
            rules.push(Rule { from, to, transpose });
        }
        let letters = |rule: &Rule| rule.from.len() - rule.from.matches('*').count();
        rules.sort_by(|a, b| {
            let stars = |rule: &Rule| rule.from.contains('*');
            let key = |rule: &Rule| (stars(rule), std::cmp::Reverse(letters(rule)));
            key(a).cmp(&key(b)).then_with(|| a.from.cmp(&b.from))
        });
        Ok(NameMap { rules, ..NameMap::default() })
    }

    /// The rules that someone wrote, without what a publisher does to all files.
    pub(super) fn without_publisher(&self) -> NameMap {
        NameMap { rules: self.rules.clone(), ..NameMap::default() }
    }

    /// Where the file's tensor `name` goes, in a model that has the tensors
    /// for which `has` is true.
    pub fn target(&self, name: &str, has: impl Fn(&str) -> bool) -> Target {
        let stem = match &self.prefix {
            // A model may itself use the prefix.
            Some(prefix) if !has(name) => name.strip_prefix(prefix.as_str()).unwrap_or(name),
            _ => name,
        };
        let mut renamed = (stem.to_string(), false);
        for Rule { from, to, transpose } in &self.rules {
            if let Some(met) = fit(from, stem) {
                match to {
                    None => return Target::Ignored,
                    Some(to) => renamed = (fill(to, &met), *transpose),
                }
                break;
            }
        }
        let (name, transpose) = renamed;
        let one_of = |patterns: &[String]| patterns.iter().any(|p| fit(p, &name).is_some());
        if !has(&name) && one_of(&self.optional) {
            return Target::Ignored;
        }
        let transpose = transpose || one_of(&self.transposed);
        Target::Tensor { name, transpose }
    }
}

/// What each `*` of a pattern stands for in `text`, as short as can be; `None`
/// if the pattern does not fit. Takes time in proportion to both lengths.
fn fit<'a>(pattern: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut pieces = pattern.split('*');
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty().then(Vec::new);
    };
    let mut met = Vec::new();
    for piece in pieces {
        let at = rest.find(piece)?;
        met.push(&rest[..at]);
        rest = &rest[at + piece.len()..];
    }
    met.push(rest.strip_suffix(last)?);
    Some(met)
}

fn fill(target: &str, met: &[&str]) -> String {
    let mut met = met.iter();
    let mut pieces = target.split('*');
    let first = pieces.next().unwrap_or_default().to_string();
    pieces.fold(first, |name, piece| name + met.next().copied().unwrap_or_default() + piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert_eq!(fit("a.b", "a.b"), Some(vec![]));
        assert_eq!(fit("a.b", "a.bc"), None);
        assert_eq!(fit("*", ""), Some(vec![""]));
        assert_eq!(fit("h.*.attn.*", "h.0.attn.c.w"), Some(vec!["0", "c.w"]));
        assert_eq!(fit("h.*.bias", "h.0.attn.bias"), Some(vec!["0.attn"]));
        assert_eq!(fit("ab*ba", "aba"), None);
        assert_eq!(fit("**x", "yx"), Some(vec!["", "y"]));
        assert_eq!(fit("*é*", "aéb"), Some(vec!["a", "b"]));
        assert_eq!(fill("l.*.w.*", &["1", "x"]), "l.1.w.x");
        assert_eq!(fill("*", &["1", "x"]), "1");
    }
}
