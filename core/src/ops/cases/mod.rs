//! The table of op cases: what every device is tested on.
//!
//! A case names an op, its inputs and how long its sums are; the harness runs
//! it forward against [`Operation::reference`] and backward against
//! differences of that reference. Shapes are awkward on purpose: 1, primes,
//! and neighbours of powers of two.

mod attentions;
mod convolutions;
mod copies;
mod lookups;
mod losses;
mod maps;
mod norms;
mod pools;
mod products;
mod reductions;

use super::*;
use crate::philox::{Stream, name_stream};

/// How an input is filled.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Standard normal.
    Normal,
    /// Normal, but at least 0.1 away from 0, where some functions bend.
    AwayFromZero,
    /// Uniform in [0.5, 2).
    Positive,
    /// All different, in random order: maxima without ties.
    Distinct,
    /// Normal, every fifth element NaN from the third on.
    SomeNan,
    /// Plus or minus this.
    Signs(f32),
    /// Normal with this mean.
    Around(f32),
    /// This.
    Constant(f32),
    /// Integers in 0..bound.
    Below(u32),
    /// Integers in 0..bound, every third one replaced by this.
    BelowOr(u32, i32),
    /// These words.
    Words(Vec<u32>),
}

/// An op with sample inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name.
    pub name: String,
    /// The op.
    pub op: Op,
    /// Types and contents of the inputs.
    pub inputs: Vec<(TensorType, Fill)>,
    /// Whether the gradient is tested too (as far as inputs are floats).
    pub gradient: bool,
    /// Terms of the longest sum that makes an output.
    pub terms: usize,
    /// Terms of the longest sum that makes a gradient.
    pub gradient_terms: usize,
    /// Error of the functions evaluated, in units of the last place.
    pub function_ulps: f64,
}

impl Case {
    fn new(name: impl Into<String>, op: Op, inputs: Vec<(TensorType, Fill)>) -> Case {
        Case {
            name: name.into(),
            op,
            inputs,
            gradient: true,
            terms: 1,
            gradient_terms: 1,
            function_ulps: 1.0,
        }
    }

    fn terms(mut self, terms: usize, gradient_terms: usize) -> Case {
        (self.terms, self.gradient_terms) = (terms, gradient_terms);
        self
    }

    fn ulps(mut self, ulps: f64) -> Case {
        self.function_ulps = ulps;
        self
    }

    fn forward_only(mut self) -> Case {
        self.gradient = false;
        self
    }

    /// The inputs' elements as the device's words hold them.
    pub fn data(&self) -> Vec<Tensor64> {
        self.inputs
            .iter()
            .enumerate()
            .map(|(k, (t, fill))| {
                let mut s = Stream::new(k as u64, name_stream(&self.name));
                let n = t.numel();
                let values = match fill {
                    Fill::Normal => (0..n).map(|_| f64::from(s.normal())).collect(),
                    Fill::Around(mean) => (0..n).map(|_| f64::from(s.normal() + mean)).collect(),
                    Fill::AwayFromZero => (0..n)
                        .map(|_| {
                            let x = s.normal();
                            f64::from(x + 0.1f32.copysign(x))
                        })
                        .collect(),
                    Fill::Positive => (0..n).map(|_| f64::from(s.uniform(0.5, 2.0))).collect(),
                    Fill::Distinct => {
                        let mut v: Vec<f64> = (0..n)
                            .map(|i| f64::from((i as f32 - n as f32 / 2.0) * 0.125))
                            .collect();
                        (1..n).rev().for_each(|i| v.swap(i, s.below(i as u32 + 1) as usize));
                        v
                    }
                    Fill::SomeNan => (0..n)
                        .map(|i| if i % 5 == 2 { f64::NAN } else { f64::from(s.normal()) })
                        .collect(),
                    Fill::Signs(x) => {
                        (0..n).map(|_| f64::from(if s.below(2) == 0 { *x } else { -*x })).collect()
                    }
                    Fill::Constant(x) => vec![f64::from(*x); n],
                    Fill::Below(bound) => (0..n).map(|_| f64::from(s.below(*bound))).collect(),
                    Fill::BelowOr(bound, other) => (0..n)
                        .map(|i| {
                            if i % 3 == 1 { f64::from(*other) } else { f64::from(s.below(*bound)) }
                        })
                        .collect(),
                    Fill::Words(w) => w.iter().map(|w| f64::from(*w)).collect(),
                };
                Tensor64::new(t, values)
            })
            .collect()
    }
}

fn f(shape: &[usize], fill: Fill) -> (TensorType, Fill) {
    (TensorType::f32(shape), fill)
}

fn normal(shape: &[usize]) -> (TensorType, Fill) {
    f(shape, Fill::Normal)
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    maps::maps(&mut out);
    norms::norms(&mut out);
    reductions::reductions(&mut out);
    products::products(&mut out);
    convolutions::convolutions(&mut out);
    attentions::attentions(&mut out);
    copies::copies(&mut out);
    pools::pools(&mut out);
    lookups::lookups(&mut out);
    losses::losses(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_sound_and_named_once() {
        let mut names = std::collections::BTreeSet::new();
        for case in cases() {
            let types: Vec<TensorType> = case.inputs.iter().map(|(t, _)| t.clone()).collect();
            let outputs = case.op.infer(&types).expect("infers");
            let reference = case.op.reference(&case.data());
            assert_eq!(outputs.len(), reference.len(), "{}", case.name);
            for (t, r) in outputs.iter().zip(&reference) {
                assert_eq!((&t.shape, t.dtype), (&r.shape, r.dtype), "{}", case.name);
            }
            assert!(names.insert(case.name.clone()), "{} is there twice", case.name);
        }
        // Every op that executes has a case.
        let ops = [
            "map",
            "reduce",
            "matmul",
            "moments",
            "conv",
            "conv_input_gradient",
            "conv_weight_gradient",
            "attention",
            "attention_gradient",
            "rope",
            "permute",
            "slice",
            "pad",
            "concat",
            "embedding",
            "embedding_gradient",
            "cross_entropy",
            "cross_entropy_gradient",
            "linear_cross_entropy",
            "linear_cross_entropy_gradient",
            "split",
            "max_pool",
            "max_pool_gradient",
            "avg_pool",
            "avg_pool_gradient",
            "upsample",
            "upsample_gradient",
        ];
        for op in ops {
            assert!(cases().iter().any(|c| c.op.name() == op), "{op} has no case");
        }
    }
}
