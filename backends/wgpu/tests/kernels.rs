//! Every kernel on every device, against the ops' float64 references.

mod support;

use plimsoll_core::dtype::DType;
use plimsoll_core::expression::{E, Expression};
use plimsoll_core::ops::cases::{Case, cases};
use plimsoll_core::ops::matmul::Variant;
use plimsoll_core::ops::{Map, Matmul, Op, Tensor64, TensorType};
use plimsoll_core::philox::{Stream, philox4x32};
use support::{Gpu, Setting, assert_near, execute, gpus, numbers, words};

/// Bound on the relative error of sums of that many terms and of functions
/// within that many units in the last place.
fn bound(case: &Case) -> f64 {
    let unit = f64::from(f32::EPSILON);
    2.0 * unit * ((case.terms as f64).sqrt() + case.function_ulps)
}

fn check(gpu: &Gpu, case: &Case, setting: &Setting) {
    let inputs = case.data();
    let got = execute(gpu, &case.op, &inputs, setting);
    for (j, reference) in case.op.reference(&inputs).iter().enumerate() {
        let what = format!("{}: {} output {j} ({:?})", gpu.name, case.name, setting.variant);
        let got = numbers(&got[j], reference.dtype);
        assert_near(&what, &got, &reference.values, bound(case));
    }
}

#[test]
fn all_op_cases() {
    for gpu in gpus() {
        cases().iter().for_each(|case| check(gpu, case, &Setting::default()));
    }
}

/// A device that allows few groups a dimension folds everything.
#[test]
fn folded_grids() {
    for gpu in gpus() {
        for case in cases() {
            // All groups must still fit.
            let large = case.inputs.iter().any(|(t, _)| t.numel() > 3000);
            if !large {
                let setting = Setting { max_groups: 7, ..Setting::default() };
                check(gpu, &case, &setting);
            }
        }
    }
}

fn supported(gpu: &Gpu) -> impl Iterator<Item = Variant> {
    Variant::ALL.into_iter().filter(|v| v.supported(&gpu.capabilities))
}

/// The variants add up in one order: the tuner's choice changes no bits.
#[test]
fn matmul_variants_agree_to_the_bit() {
    for gpu in gpus() {
        for case in cases().iter().filter(|c| c.op.name() == "matmul") {
            let mut first: Option<Vec<u32>> = None;
            for variant in supported(gpu) {
                let setting = Setting { variant, ..Setting::default() };
                check(gpu, case, &setting);
                let got = execute(gpu, &case.op, &case.data(), &setting).remove(0);
                match &first {
                    None => first = Some(got),
                    Some(first) => {
                        assert!(got == *first, "{}: {} {variant:?}", gpu.name, case.name);
                    }
                }
            }
        }
    }
}

fn normal(shape: &[usize], seed: u64) -> Tensor64 {
    let t = TensorType::f32(shape);
    let mut stream = Stream::new(seed, 5);
    Tensor64::new(&t, (0..t.numel()).map(|_| f64::from(stream.normal())).collect())
}

/// Infinities and NaN stay in their rows and columns, also at the edges that
/// kernels pad.
#[test]
fn matmul_keeps_infinities_apart() {
    for gpu in gpus() {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            for variant in supported(gpu) {
                let (m, n, k) = (9, 70, 18);
                let mut a = normal(if ta { &[18, 9] } else { &[9, 18] }, 1);
                let mut b = normal(if tb { &[70, 18] } else { &[18, 70] }, 2);
                // In the last row of A and the last column of B, at the last k.
                a.values[m * k - 1] = f64::INFINITY;
                b.values[k * n - 1] = f64::NAN;
                let op = Op::Matmul(Matmul::new(ta, tb));
                let setting = Setting { variant, ..Setting::default() };
                let inputs = [a, b];
                let got = numbers(&execute(gpu, &op, &inputs, &setting)[0], DType::F32);
                for (i, x) in got.iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let what = format!("{} {variant:?} {ta} {tb} [{row}, {column}]", gpu.name);
                    assert_eq!(x.is_nan(), column == n - 1, "{what}: {x}");
                    let infinite = row == m - 1 && column != n - 1;
                    assert_eq!(x.is_infinite(), infinite, "{what}: {x}");
                }
            }
        }
    }
}

/// `C += A B` in C's own memory.
#[test]
fn matmul_accumulates_in_place() {
    for gpu in gpus() {
        for variant in supported(gpu) {
            let epilogue = Expression::new(vec![DType::F32; 2], &[E::input(0) + E::input(1)]);
            let op = Op::Matmul(Matmul { epilogue, ..Matmul::new(true, false) });
            let inputs = [normal(&[33, 65], 1), normal(&[33, 130], 2), normal(&[65, 130], 3)];
            let setting = Setting { variant, in_place: Some(2), ..Setting::default() };
            let got = numbers(&execute(gpu, &op, &inputs, &setting)[0], DType::F32);
            let reference = op.reference(&inputs).remove(0);
            assert_near(&format!("{} {variant:?}", gpu.name), &got, &reference.values, 1e-6);
        }
    }
}

/// Maps and loss gradients whose output takes the memory of an input.
#[test]
fn elementwise_in_place() {
    for gpu in gpus() {
        for case in cases() {
            let types: Vec<TensorType> = case.inputs.iter().map(|(t, _)| t.clone()).collect();
            let outputs = case.op.infer(&types).expect("sound");
            let copies = ["matmul", "reduce"].contains(&case.op.name());
            let fits = types[0].bytes() == outputs[0].bytes() && types[0].dtype == DType::F32;
            if !copies && fits && case.op.may_alias(&types, 0, 0) {
                check(gpu, &case, &Setting { in_place: Some(0), ..Setting::default() });
            }
        }
    }
}

/// Random bits are those of Philox, with 64-bit positions that carry.
#[test]
fn random_bits_are_exact() {
    let rng = [0x1234_5678, 0x9abc_def0, 41, 0xffff_fff1];
    for gpu in gpus() {
        for per_item in [0, 1, 5, 0xffff, 0x1_0000, 0x1234_5679, u32::MAX as usize] {
            let e = Expression::new(vec![DType::U32], &[E::random(0, 9, per_item)]);
            let map = Op::Map(Map { expression: e, shape: vec![1000] });
            let words = rng.iter().map(|w| f64::from(*w)).collect();
            let input = Tensor64::new(&TensorType::new([4], DType::U32), words);
            let got = execute(gpu, &map, &[input], &Setting::default()).remove(0);
            for (i, bits) in got.iter().enumerate() {
                let index = u64::from(rng[3]) * per_item as u64 + i as u64;
                let counter = [index as u32, (index >> 32) as u32, 9, rng[2]];
                let expected = philox4x32(counter, [rng[0], rng[1]])[0];
                assert_eq!(*bits, expected, "{}: {per_item} an item, element {i}", gpu.name);
            }
        }
    }
}

/// Values of a function of one float on a device.
fn function(gpu: &Gpu, e: E, x: &[f32]) -> Vec<f64> {
    let expression = Expression::new(vec![DType::F32], &[e]);
    let map = Op::Map(Map { expression, shape: vec![x.len()] });
    let input =
        Tensor64::new(&TensorType::f32([x.len()]), x.iter().map(|x| f64::from(*x)).collect());
    numbers(&execute(gpu, &map, &[input], &Setting::default())[0], DType::F32)
}

/// The prelude's functions over their whole range.
#[test]
fn functions_everywhere() {
    let sweep = |low: f32, high: f32| -> Vec<f32> {
        (0..=20_000).map(|i| low + (high - low) * (i as f32 / 20_000.0)).collect()
    };
    // Name, expression, exact function, arguments, and the errors allowed:
    // absolute and relative.
    type Function = (&'static str, E, fn(f64) -> f64, Vec<f32>, f64, f64);
    let functions: [Function; 7] = [
        ("tanh", E::input(0).tanh(), f64::tanh, sweep(-12.0, 12.0), 2e-7, 6e-7),
        ("tanh near 0", E::input(0).tanh(), f64::tanh, sweep(-1e-3, 1e-3), 0.0, 3e-7),
        ("erf", E::input(0).erf(), libm::erf, sweep(-6.0, 6.0), 4e-7, 0.0),
        ("erf near 0", E::input(0).erf(), libm::erf, sweep(-1e-3, 1e-3), 0.0, 3e-7),
        ("sin", E::input(0).sin(), f64::sin, sweep(-100.0, 100.0), 4e-7, 0.0),
        ("cos", E::input(0).cos(), f64::cos, sweep(-100.0, 100.0), 4e-7, 0.0),
        ("exp", E::input(0).exp(), f64::exp, sweep(-20.0, 20.0), 0.0, 3e-6),
    ];
    for gpu in gpus() {
        for (name, e, exact, x, absolute, relative) in &functions {
            for (x, y) in x.iter().zip(function(gpu, e.clone(), x)) {
                let expected = exact(f64::from(*x));
                let error = (y - expected).abs();
                let allowed = absolute + relative * expected.abs();
                assert!(error <= allowed, "{}: {name}({x}) = {y}, not {expected}", gpu.name);
            }
        }
    }
}

/// Large arguments, infinities and NaN.
#[test]
fn functions_at_the_ends() {
    let x = [0.0, -0.0, 1e4, -1e4, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for gpu in gpus() {
        let tanh = function(gpu, E::input(0).tanh(), &x);
        let erf = function(gpu, E::input(0).erf(), &x);
        for (name, y) in [("tanh", tanh), ("erf", erf)] {
            let what = format!("{} {name} {y:?}", gpu.name);
            assert_eq!(y[..7], [0.0, 0.0, 1.0, -1.0, 1.0, 1.0, -1.0], "{what}");
            assert!(y[7].is_nan(), "{what}");
        }
        // A NaN shows, whatever is done to it; `x != x` finds it.
        let found = E::input(0).not_equal(E::input(0)).select(1.0, 0.0);
        let found = function(gpu, found, &x);
        assert_eq!(found, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], "{}", gpu.name);
    }
}

/// Bytes at every place of their word, with lengths that end within one.
#[test]
fn bytes() {
    for gpu in gpus() {
        for n in [1, 2, 3, 4, 5, 63, 255, 1031] {
            let e = E::input(0).cast(plimsoll_core::expression::Scalar::F32);
            let map =
                Op::Map(Map { expression: Expression::new(vec![DType::U8], &[e]), shape: vec![n] });
            let values: Vec<f64> = (0..n).map(|i| f64::from((i * 37 % 256) as u8)).collect();
            let input = Tensor64::new(&TensorType::new([n], DType::U8), values.clone());
            assert_eq!(words(&input).len(), n.div_ceil(4));
            let got = execute(gpu, &map, &[input], &Setting::default()).remove(0);
            assert_eq!(numbers(&got, DType::F32), values, "{}: {n} bytes", gpu.name);
        }
    }
}
