//! Cases of pools and `upsample`.

use super::*;

/// Shapes with a pool: windows side by side, overlapping, apart, padded on one
/// side only, one that is all padding but for an element.
fn windows() -> Vec<(Vec<usize>, Pool)> {
    vec![
        (vec![1, 1, 1], Pool::new(&[1])),
        (vec![2, 3, 17], Pool::new(&[3]).stride(&[2]).padding(&[1])),
        (vec![1, 2, 1], Pool::new(&[4]).stride(&[1]).padding(&[2])),
        (vec![2, 3, 8, 6], Pool::new(&[2, 2])),
        (vec![1, 5, 9, 7], Pool::new(&[3, 2]).stride(&[2, 1]).padding(&[1, 1])),
        (vec![3, 1, 7, 13], Pool::new(&[2, 3]).stride(&[3, 4])),
        (vec![1, 2, 5, 6, 7], Pool::new(&[2, 3, 3]).stride(&[1, 2, 1]).padding(&[1, 0, 1])),
    ]
}

pub fn pools(out: &mut Vec<Case>) {
    for (input, pool) in windows() {
        let label = format!("{input:?}_{:?}_{:?}_{:?}", pool.kernel, pool.stride, pool.padding)
            .replace(", ", "x");
        let window = shape::numel(&pool.kernel);
        let max = Op::MaxPool(MaxPool { pool: pool.clone() });
        let name = format!("max_pool/{label}");
        let case = Case::new(name, max.clone(), vec![f(&input, Fill::Distinct)]);
        out.push(case.terms(1, window));
        let y = max.infer(&[TensorType::f32(input.clone())]).expect("is sound");
        for count_include_pad in [true, false] {
            let op = AvgPool { pool: pool.clone(), count_include_pad };
            let kind = if count_include_pad { "with_padding" } else { "without_padding" };
            let case = Case::new(
                format!("avg_pool/{label}_{kind}"),
                Op::AvgPool(op.clone()),
                vec![normal(&input)],
            );
            // A division is within 2.5 ulp.
            out.push(case.terms(window, window).ulps(2.5));
            let op = AvgPoolGradient { forward: op, input: input.clone() };
            let name = format!("avg_pool_gradient/{label}_{kind}");
            let inputs = vec![normal(&y[0].shape)];
            let case = Case::new(name, Op::AvgPoolGradient(op), inputs);
            out.push(case.terms(window, 1).ulps(2.5).forward_only());
        }
    }
    // Windows that cover whole planes: any position is one that they can hold.
    for (input, kernel, padding) in
        [(vec![2, 3, 5], vec![9], vec![4]), (vec![1, 2, 4, 3], vec![7, 5], vec![3, 2])]
    {
        let pool = Pool::new(&kernel).stride(&vec![1; kernel.len()]).padding(&padding);
        let indices = TensorType::new(input.clone(), DType::I32);
        let plane = shape::numel(&input[2..]);
        let inputs = vec![(indices, Fill::Below(plane as u32)), normal(&input)];
        let name = format!("max_pool_gradient/{input:?}").replace(", ", "x");
        let op = Op::MaxPoolGradient(MaxPoolGradient { pool, input });
        out.push(Case::new(name, op, inputs).terms(plane, 1).forward_only());
    }
    let pool = Pool::new(&[3, 3]).stride(&[1, 1]).padding(&[1, 1]);
    for (name, fill) in [("ties", Fill::Signs(1.0)), ("nan", Fill::SomeNan)] {
        let op = Op::MaxPool(MaxPool { pool: pool.clone() });
        let case = Case::new(format!("max_pool/{name}"), op, vec![f(&[2, 2, 5, 6], fill)]);
        out.push(case.forward_only());
    }
    for (input, factors) in [
        (vec![1, 1, 1], vec![1]),
        (vec![2, 3, 5], vec![3]),
        (vec![1, 2, 7], vec![4]),
        (vec![2, 3, 5, 4], vec![2, 2]),
        (vec![1, 3, 1, 6], vec![5, 1]),
        (vec![1, 2, 3, 4, 2], vec![2, 3, 4]),
    ] {
        for mode in [UpsampleMode::Nearest, UpsampleMode::Linear] {
            let op = Upsample { factors: factors.clone(), mode };
            let label = format!("{input:?}_{factors:?}_{mode:?}").replace(", ", "x");
            let label = label.to_lowercase();
            // Eight products of three shares forward; backward two factors a
            // dimension.
            let terms: usize = factors.iter().map(|f| 2 * f).product();
            let case = Case::new(
                format!("upsample/{label}"),
                Op::Upsample(op.clone()),
                vec![normal(&input)],
            );
            out.push(case.terms(8, terms).ulps(4.0));
            let y = Op::Upsample(op.clone()).infer(&[TensorType::f32(input.clone())]);
            let inputs = vec![(y.expect("is sound").remove(0), Fill::Normal)];
            let op = Op::UpsampleGradient(UpsampleGradient { forward: op });
            let case = Case::new(format!("upsample_gradient/{label}"), op, inputs);
            out.push(case.terms(terms, 1).ulps(4.0).forward_only());
        }
    }
}
