//! The table of op cases: what every device is tested on.
//!
//! A case names an op, its inputs and how long its sums are; the harness runs
//! it forward against [`Operation::reference`] and backward against
//! differences of that reference. Shapes are awkward on purpose: 1, primes,
//! and neighbours of powers of two.

use super::reduce::ReduceKind;
use super::*;
use crate::expression::{E, Expression, Scalar};
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
    maps(&mut out);
    reductions(&mut out);
    products(&mut out);
    copies(&mut out);
    lookups(&mut out);
    losses(&mut out);
    out
}

fn map_case(name: &str, inputs: Vec<(TensorType, Fill)>, e: &[E]) -> Case {
    let types: Vec<TensorType> = inputs.iter().map(|(t, _)| t.clone()).collect();
    let expression = Expression::new(types.iter().map(|t| t.dtype).collect(), e);
    let map = Map::over(expression, &types).expect("cases are sound");
    Case::new(format!("map/{name}"), Op::Map(map), inputs)
}

fn maps(out: &mut Vec<Case>) {
    let x = || E::input(0);
    let y = || E::input(1);
    // Functions: WGSL grants exp and log a few ulp, others follow from them.
    let unary: [(&str, Fill, E, f64); 14] = [
        ("neg", Fill::Normal, -x(), 1.0),
        ("abs", Fill::AwayFromZero, x().abs(), 1.0),
        ("exp", Fill::Normal, x().exp(), 8.0),
        ("log", Fill::Positive, x().log(), 8.0),
        ("sqrt", Fill::Positive, x().sqrt(), 4.0),
        ("rsqrt", Fill::Positive, x().rsqrt(), 4.0),
        ("tanh", Fill::Normal, x().tanh(), 8.0),
        ("erf", Fill::Normal, x().erf(), 8.0),
        // Sine and cosine are within 2⁻¹¹ on [−π, π] by the specification;
        // devices that are tested here keep 8 ulp.
        ("sin", Fill::Positive, x().sin(), 8.0),
        ("cos", Fill::Positive, x().cos(), 8.0),
        ("relu", Fill::AwayFromZero, x().max(0.0), 1.0),
        ("sigmoid", Fill::Normal, 1.0 / ((-x()).exp() + 1.0), 8.0),
        ("clamp", Fill::AwayFromZero, x().max(-0.05).min(0.05), 1.0),
        ("select", Fill::AwayFromZero, x().less(0.0).select(x() * 0.01, x()), 1.0),
    ];
    for (name, fill, e, ulps) in unary {
        out.push(map_case(name, vec![f(&[5, 13], fill)], &[e]).ulps(ulps));
    }
    let floor = map_case("floor", vec![normal(&[65])], &[x().floor()]);
    out.push(floor.forward_only());
    for (name, e) in [("relu_of_nan", x().max(0.0)), ("min_with_nan", E::constant(0.5).min(x()))] {
        out.push(map_case(name, vec![f(&[3, 21], Fill::SomeNan)], &[e]).forward_only());
    }
    for n in [1, 63, 64, 65, 257, 16_411] {
        out.push(map_case(
            &format!("axpy_{n}"),
            vec![normal(&[n]), normal(&[n])],
            &[x() * 0.5 + y()],
        ));
    }
    let binary: [(&str, E, f64); 4] = [
        ("sub", x() - y(), 1.0),
        ("mul", x() * y(), 1.0),
        ("div", x() / y(), 4.0),
        ("pow", x().pow(y()), 16.0),
    ];
    for (name, e, ulps) in binary {
        let inputs = vec![f(&[7, 11], Fill::Positive), f(&[7, 11], Fill::Positive)];
        out.push(map_case(name, inputs, &[e]).ulps(ulps));
    }
    // Never closer to a tie than a sixteenth: differences stay on one side.
    for (name, e) in [("min", x().min(y() + 0.0625)), ("max", x().max(y() + 0.0625))] {
        let inputs = vec![f(&[7, 11], Fill::Distinct), f(&[7, 11], Fill::Distinct)];
        out.push(map_case(name, inputs, &[e]));
    }
    // Broadcasting, in every place of a dimension.
    for (a, b) in [
        (vec![13, 65], vec![65]),
        (vec![13, 65], vec![13, 1]),
        (vec![3, 5, 7], vec![5, 1]),
        (vec![3, 5, 7], vec![3, 1, 7]),
        (vec![3, 1, 7], vec![5, 1]),
        (vec![2, 3, 4, 5], vec![2, 1, 4, 1]),
        (vec![9, 31], vec![1]),
    ] {
        let name = format!("broadcast_{a:?}_{b:?}").replace(", ", "x");
        let sum = shape::numel(&a).max(shape::numel(&b));
        out.push(map_case(&name, vec![normal(&a), normal(&b)], &[x() * y() + y()]).terms(1, sum));
    }
    let many = map_case(
        "several_outputs",
        vec![normal(&[257]), f(&[257], Fill::Positive)],
        &[x() + y(), x() * y(), x().tanh() / y()],
    );
    out.push(many.ulps(8.0));
    let bytes = vec![(TensorType::new([3, 67], DType::U8), Fill::Below(256))];
    out.push(map_case("bytes", bytes, &[x().cast(Scalar::F32) * (2.0 / 255.0) - 1.0]));
    let labels = vec![(TensorType::new([77], DType::I32), Fill::BelowOr(50, -100))];
    out.push(map_case(
        "integers",
        labels,
        &[x().less(E::i32(0)).select(E::i32(-1), x() + E::i32(3))],
    ));
    let scalars = vec![normal(&[97]), f(&[4], Fill::Positive)];
    let at = map_case("step_scalars", scalars, &[x() * E::at(1, 2) - E::at(1, 0)]);
    out.push(at.forward_only());
    let rng = Fill::Words(vec![0x1234_5678, 0x9abc_def0, 7, 0xffff_fff0]);
    let rng = (TensorType::new([4], DType::U32), rng);
    let bits = E::random(1, 3, 1_000_003);
    let random = vec![normal(&[2, 129]), rng.clone()];
    out.push(map_case("dropout", random, &[bits.unit().less(0.3).select(0.0, x() * (1.0 / 0.7))]));
    let raw = vec![normal(&[2, 129]), rng];
    let raw = map_case("random_bits", raw, &[x(), bits]);
    out.push(raw.forward_only());
}

fn reductions(out: &mut Vec<Case>) {
    for (shape, first, count) in [
        (vec![1], 0, 1),
        (vec![65], 0, 1),
        (vec![5, 257], 1, 1),
        (vec![257, 5], 0, 1),
        (vec![3, 5, 7], 1, 1),
        (vec![3, 5, 7], 0, 3),
        (vec![63, 64], 0, 1),
        (vec![2, 499, 3], 1, 1),
        (vec![1021, 65], 0, 1),
        (vec![2, 8209], 1, 1),
    ] {
        for kind in [ReduceKind::Sum, ReduceKind::Max] {
            let max = kind == ReduceKind::Max;
            let terms: usize = if max { 1 } else { shape[first..first + count].iter().product() };
            // A handful of sums may cancel by chance, and the error measure
            // divides by what is left: add up numbers of one sign there.
            let few = !max && shape::numel(&shape) <= 4 * terms;
            let fill = match (max, few) {
                (true, _) => Fill::Distinct,
                (_, true) => Fill::Positive,
                _ => Fill::Normal,
            };
            let axes = format!("{}_{}", first, first + count);
            let label = if max { "max" } else { "sum" };
            let name = format!("reduce/{label}_{shape:?}_{axes}").replace(", ", "x");
            let prologue = Expression::identity();
            let op = Reduce { kind, prologue, shape: shape.clone(), first, count };
            out.push(Case::new(name, Op::Reduce(op), vec![f(&shape, fill)]).terms(terms, 1));
        }
    }
    for (first, shape) in [(1, vec![4, 7]), (0, vec![3, 70])] {
        // Some rows or columns hold a NaN.
        let prologue = Expression::identity();
        let name = format!("reduce/max_of_nan_{first}");
        let op = Reduce { kind: ReduceKind::Max, prologue, shape: shape.clone(), first, count: 1 };
        let case = Case::new(name, Op::Reduce(op), vec![f(&shape, Fill::SomeNan)]);
        out.push(case.forward_only());
    }
    let prologue = Expression::new(vec![DType::F32; 2], &[E::input(0) * E::input(1)]);
    let shape = vec![65, 130];
    let op = Reduce { kind: ReduceKind::Sum, prologue, shape: shape.clone(), first: 0, count: 1 };
    let inputs = vec![normal(&shape), normal(&[130])];
    let case = Case::new("reduce/sum_of_products", Op::Reduce(op), inputs);
    out.push(case.terms(65, 1).forward_only());
}

fn products(out: &mut Vec<Case>) {
    let sizes = [
        (1, 1, 1),
        (5, 3, 17),
        (63, 65, 64),
        (65, 63, 129),
        (33, 10, 257),
        (1, 130, 7),
        (131, 1, 5),
    ];
    let transposes = [(false, false), (false, true), (true, false), (true, true)];
    let mut add = |batch: &[usize], (m, n, k): (usize, usize, usize), (ta, tb): (bool, bool)| {
        let with = |r: usize, c: usize, t: bool| {
            let mut s = batch.to_vec();
            s.extend(if t { [c, r] } else { [r, c] });
            normal(&s)
        };
        let t = |on: bool| if on { "t" } else { "n" };
        let b: String = batch.iter().map(|b| format!("{b}x")).collect();
        let name = format!("matmul/{b}{m}x{n}x{k}_{}{}", t(ta), t(tb));
        let inputs = vec![with(m, k, ta), with(k, n, tb)];
        let case = Case::new(name, Op::Matmul(Matmul::new(ta, tb)), inputs);
        out.push(case.terms(k, m.max(n)));
    };
    for s in sizes {
        transposes.iter().for_each(|t| add(&[], s, *t));
    }
    transposes.iter().for_each(|t| add(&[3], (31, 17, 23), *t));
    add(&[2, 2], (9, 65, 33), (false, false));
    add(&[], (257, 499, 65), (false, true));
    add(&[], (513, 67, 257), (true, false));
    // Epilogues: bias and relu, residual with a mask, accumulation.
    let epilogues: [(&str, Vec<usize>, E); 4] = [
        ("bias_relu", vec![67], (E::input(0) + E::input(1)).max(0.0)),
        ("rows", vec![35, 1], E::input(0) * E::input(1)),
        ("mask", vec![35, 67], E::constant(0.0).less(E::input(1)).select(E::input(0), 0.0)),
        ("add", vec![35, 67], E::input(0) + E::input(1)),
    ];
    for (name, shape, e) in epilogues {
        let epilogue = Expression::new(vec![DType::F32; 2], &[e]);
        let op = Matmul { epilogue, ..Matmul::new(false, true) };
        let inputs = vec![normal(&[35, 19]), normal(&[67, 19]), normal(&shape)];
        let case = Case::new(format!("matmul/epilogue_{name}"), Op::Matmul(op), inputs);
        out.push(case.terms(19, 1).forward_only());
    }
}

fn copies(out: &mut Vec<Case>) {
    for (shape, order) in [
        (vec![1, 7], vec![1, 0]),
        (vec![65, 63], vec![1, 0]),
        (vec![3, 5, 7], vec![2, 0, 1]),
        (vec![2, 9, 4, 5], vec![0, 2, 1, 3]),
        (vec![2, 3, 4, 5], vec![3, 2, 1, 0]),
    ] {
        let name = format!("permute/{shape:?}_{order:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Permute(Permute { order }), vec![normal(&shape)]));
    }
    for (shape, starts, ends) in [
        (vec![257], vec![0], vec![1]),
        (vec![13, 65], vec![3, 1], vec![12, 64]),
        (vec![3, 5, 7], vec![0, 2, 0], vec![3, 5, 7]),
        (vec![3, 5, 7], vec![1, 4, 6], vec![2, 5, 7]),
    ] {
        let name = format!("slice/{shape:?}_{starts:?}_{ends:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Slice(Slice { starts, ends }), vec![normal(&shape)]));
    }
    for (shape, before, after) in [
        (vec![1], vec![3], vec![0]),
        (vec![13, 65], vec![0, 1], vec![2, 0]),
        (vec![3, 5, 7], vec![1, 0, 2], vec![0, 1, 1]),
    ] {
        let name = format!("pad/{shape:?}_{before:?}_{after:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Pad(Pad { before, after }), vec![normal(&shape)]));
    }
    for (axis, shapes) in [
        (0, vec![vec![65], vec![1], vec![63]]),
        (1, vec![vec![7, 3], vec![7, 11]]),
        (1, vec![vec![3, 1, 5], vec![3, 2, 5], vec![3, 4, 5]]),
        (0, vec![vec![4, 9]]),
    ] {
        let name = format!("concat/{shapes:?}_{axis}").replace(", ", "x");
        let inputs = shapes.iter().map(|s| normal(s)).collect();
        out.push(Case::new(name, Op::Concat(Concat { axis }), inputs));
    }
}

fn lookups(out: &mut Vec<Case>) {
    for (rows, width, indices) in
        [(1, 1, vec![1]), (11, 5, vec![2, 6]), (257, 65, vec![131]), (7, 130, vec![3, 33])]
    {
        let count = shape::numel(&indices);
        let shape = indices.clone();
        let i = (TensorType::new(indices, DType::I32), Fill::Below(rows as u32));
        let name = format!("embedding/{rows}x{width}_{count}");
        let inputs = vec![normal(&[rows, width]), i];
        out.push(Case::new(name, Op::Embedding(Embedding), inputs).terms(1, count));
        let mut with_width = shape.clone();
        with_width.push(width);
        let outside = (TensorType::new(shape, DType::I32), Fill::BelowOr(rows as u32, -100));
        let op = Op::EmbeddingGradient(EmbeddingGradient { rows });
        let name = format!("embedding_gradient/{rows}x{width}_{count}");
        let case = Case::new(name, op, vec![outside, normal(&with_width)]);
        out.push(case.terms(count, 1).forward_only());
    }
}

fn losses(out: &mut Vec<Case>) {
    for (rows, classes) in [(1, 1), (5, 10), (33, 13), (3, 1031), (130, 65)] {
        for (label_smoothing, ignored) in [(0.0, false), (0.1, true)] {
            let forward = CrossEntropy { ignore_index: -100, label_smoothing };
            let fill = match ignored {
                true => Fill::BelowOr(classes as u32, -100),
                false => Fill::Below(classes as u32),
            };
            let labels = (TensorType::new([rows], DType::I32), fill);
            let kind = if ignored { "smoothed_ignoring" } else { "plain" };
            let inputs = vec![normal(&[rows, classes]), labels.clone()];
            let op = Op::CrossEntropy(forward.clone());
            let case = Case::new(format!("cross_entropy/{rows}x{classes}_{kind}"), op, inputs);
            // Loss and gradient are small differences of larger numbers.
            let case = case.terms(classes, classes).ulps(16.0);
            // With one class the gradient is 0 and nothing to be relative to.
            out.push(if classes == 1 { case.forward_only() } else { case });
            let op = Op::CrossEntropyGradient(CrossEntropyGradient { forward });
            let inputs =
                vec![normal(&[rows, classes]), labels, f(&[rows], Fill::Positive), normal(&[rows])];
            let name = format!("cross_entropy_gradient/{rows}x{classes}_{kind}");
            out.push(Case::new(name, op, inputs).ulps(16.0).forward_only());
        }
    }
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
            "permute",
            "slice",
            "pad",
            "concat",
            "embedding",
            "embedding_gradient",
            "cross_entropy",
            "cross_entropy_gradient",
        ];
        for op in ops {
            assert!(cases().iter().any(|c| c.op.name() == op), "{op} has no case");
        }
    }
}
