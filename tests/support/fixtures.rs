//! The golden files of `tests/fixtures`; `generate.py` there tells the format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;

use plimsoll::DType;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::evaluate::Tensor;

/// A golden file.
pub struct File {
    name: String,
    cases: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
    used: Mutex<BTreeSet<String>>,
}

/// A case of a golden file.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    file: &'a File,
    /// Its name.
    pub name: &'a str,
    attributes: &'a Value,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Names of all golden files.
pub fn files() -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder()).expect("the fixtures are there");
    entries
        .map(|e| e.expect("is listed").path())
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .map(|p| p.file_stem().expect("has a name").to_string_lossy().into_owned())
        .collect()
}

impl File {
    /// Reads a golden file.
    pub fn open(name: &str) -> File {
        let bytes = std::fs::read(folder().join(format!("{name}.safetensors"))).expect("is read");
        let (_, metadata) = SafeTensors::read_metadata(&bytes).expect("has a header");
        let notes = metadata.metadata().as_ref().expect("has metadata");
        let cases = serde_json::from_str(&notes["cases"]).expect("lists its cases");
        let data = SafeTensors::deserialize(&bytes).expect("is whole");
        let tensors = data.iter().map(|(key, view)| {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::I32 => DType::I32,
                other => panic!("{name}/{key}: {other:?}"),
            };
            let words = bytemuck::pod_collect_to_vec(view.data());
            let tensor_name = key.rsplit_once('/').expect("is in a case").1.to_string();
            let tensor = Tensor { name: tensor_name, shape: view.shape().to_vec(), dtype, words };
            (key.to_string(), tensor)
        });
        let tensors = tensors.collect();
        File { name: name.to_string(), cases, tensors, used: Mutex::default() }
    }

    /// All cases.
    pub fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        assert!(!self.cases.is_empty(), "{} has no case", self.name);
        self.cases.iter().map(|(name, attributes)| Case { file: self, name, attributes })
    }

    /// Asserts that no tensor of the file was passed over.
    pub fn assert_all_used(&self) {
        let used = self.used.lock().expect("no test panicked");
        let left: Vec<&String> = self.tensors.keys().filter(|k| !used.contains(*k)).collect();
        assert!(left.is_empty(), "{}: no test looks at {left:?}", self.name);
    }
}

impl<'a> Case<'a> {
    /// For messages.
    pub fn label(&self, device: &str) -> String {
        format!("{}/{} on {device}", self.file.name, self.name)
    }

    /// A tensor, such as `out.y`.
    pub fn get(&self, key: &str) -> &'a Tensor {
        let key = format!("{}/{key}", self.name);
        self.file.used.lock().expect("no test panicked").insert(key.clone());
        self.file.tensors.get(&key).unwrap_or_else(|| panic!("{}: no {key}", self.file.name))
    }

    /// A float tensor's elements.
    pub fn floats(&self, key: &str) -> Vec<f32> {
        self.get(key).floats()
    }

    /// Names behind a prefix such as `in.`, in order.
    pub fn names(&self, prefix: &str) -> Vec<&'a str> {
        let prefix = format!("{}/{prefix}", self.name);
        let keys = self.file.tensors.keys();
        keys.filter_map(|k| k.strip_prefix(&prefix)).collect()
    }

    /// All inputs, in order of their names, which they get.
    pub fn inputs(&self) -> Vec<Tensor> {
        let named =
            |n: &&str| Tensor { name: n.to_string(), ..self.get(&format!("in.{n}")).clone() };
        self.names("in.").iter().map(named).collect()
    }

    /// An attribute.
    pub fn attribute(&self, key: &str) -> &'a Value {
        let value = self.attributes.get(key);
        value.unwrap_or_else(|| panic!("{}/{}: no {key}", self.file.name, self.name))
    }

    /// A text.
    pub fn text(&self, key: &str) -> &'a str {
        self.attribute(key).as_str().expect("is a text")
    }

    /// A number.
    pub fn number(&self, key: &str) -> f64 {
        self.attribute(key).as_f64().expect("is a number")
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> bool {
        self.attribute(key).as_bool().expect("is a truth value")
    }

    /// A list of sizes.
    pub fn sizes(&self, key: &str) -> Vec<usize> {
        let list = self.attribute(key).as_array().expect("is a list");
        list.iter().map(|v| v.as_u64().expect("is a size") as usize).collect()
    }
}
