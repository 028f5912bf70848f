//! Cases of `map`.

use super::*;
use crate::expression::{E, Expression, Scalar};

fn map_case(name: &str, inputs: Vec<(TensorType, Fill)>, e: &[E]) -> Case {
    let types: Vec<TensorType> = inputs.iter().map(|(t, _)| t.clone()).collect();
    let expression = Expression::new(types.iter().map(|t| t.dtype).collect(), e);
    let map = Map::over(expression, &types).expect("cases are sound");
    Case::new(format!("map/{name}"), Op::Map(map), inputs)
}

pub fn maps(out: &mut Vec<Case>) {
    let x = || E::input(0);
    let y = || E::input(1);
    // Functions: WGSL grants exp and log a few ulp, others follow from them.
    let unary: [(&str, Fill, E, f64); 19] = [
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
        ("sigmoid", Fill::Normal, x().sigmoid(), 8.0),
        ("clamp", Fill::AwayFromZero, x().clamp(-0.05, 0.05), 1.0),
        ("softplus", Fill::Normal, x().softplus(), 8.0),
        ("silu", Fill::Normal, x().silu(), 8.0),
        ("gelu", Fill::Normal, x().gelu(), 8.0),
        ("gelu_tanh", Fill::Normal, x().gelu_tanh(), 8.0),
        ("leaky_relu", Fill::AwayFromZero, x().leaky_relu(0.01), 1.0),
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
