//! Cases of `cross_entropy` and `linear_cross_entropy`.

use super::*;

pub fn losses(out: &mut Vec<Case>) {
    of_logits(out);
    of_hidden(out);
}

fn of_logits(out: &mut Vec<Case>) {
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

/// [rows, classes, width] with the rows of a chunk.
const HIDDEN: [([usize; 3], usize); 6] = [
    ([1, 2, 1], 1),
    ([7, 11, 5], 3),
    ([33, 13, 19], 16),
    ([5, 257, 9], 2),
    ([66, 3, 33], 13),
    ([67, 65, 3], 1000),
];

fn of_hidden(out: &mut Vec<Case>) {
    for ([rows, classes, width], chunk_rows) in HIDDEN {
        for (label_smoothing, bias) in [(0.0, false), (0.1, true)] {
            let loss = CrossEntropy { ignore_index: -100, label_smoothing };
            let chunk_bytes = (4 * classes * chunk_rows) as u64;
            let op = LinearCrossEntropy { loss, chunk_bytes };
            let fill = match bias {
                true => Fill::BelowOr(classes as u32, -100),
                false => Fill::Below(classes as u32),
            };
            let labels = (TensorType::new([rows], DType::I32), fill);
            let mut inputs = vec![normal(&[rows, width]), normal(&[classes, width]), labels];
            inputs.extend(bias.then(|| normal(&[classes])));
            let kind = if bias { "bias_smoothed_ignoring" } else { "plain" };
            let name = format!("linear_cross_entropy/{rows}x{classes}x{width}_{kind}");
            let case = Case::new(name, Op::LinearCrossEntropy(op.clone()), inputs.clone());
            // A logit's error, u · width / √6 for terms of size 1, is a relative
            // error of its exponential: width / 5 ulp.
            let case = case.terms(classes, classes.max(rows)).ulps(16.0 + width as f64 / 5.0);
            out.push(case);
            // The gradient by itself, as far as it is wanted.
            let wanted = if bias { [false, true, true] } else { [true, false, false] };
            inputs.insert(3, f(&[rows], Fill::Constant(width as f32)));
            inputs.insert(4, normal(&[rows]));
            let op = LinearCrossEntropyGradient { forward: op, wanted };
            let name = format!("linear_cross_entropy_gradient/{rows}x{classes}x{width}_{kind}");
            let case = Case::new(name, Op::LinearCrossEntropyGradient(op), inputs);
            let case = case.terms(classes.max(rows), 1).ulps(16.0 + width as f64 / 5.0);
            out.push(case.forward_only());
        }
    }
    // Logits of ±24, ±72 and ±120, where a careless exp overflows.
    let [rows, classes, width] = [9, 17, 5];
    let op = LinearCrossEntropy { chunk_bytes: 4 * 17 * 4, ..LinearCrossEntropy::default() };
    let labels = (TensorType::new([rows], DType::I32), Fill::BelowOr(17, -100));
    let mut inputs =
        vec![f(&[rows, width], Fill::Signs(6.0)), f(&[classes, width], Fill::Signs(4.0)), labels];
    let name = "linear_cross_entropy/large_logits";
    let case = Case::new(name, Op::LinearCrossEntropy(op.clone()), inputs.clone());
    out.push(case.terms(classes, 1).ulps(16.0).forward_only());
    inputs.extend([f(&[rows], Fill::Constant(120.0)), normal(&[rows])]);
    let op = LinearCrossEntropyGradient { forward: op, wanted: [true, true, false] };
    let name = "linear_cross_entropy_gradient/large_logits";
    let case = Case::new(name, Op::LinearCrossEntropyGradient(op), inputs);
    out.push(case.terms(classes, 1).ulps(16.0).forward_only());
}
