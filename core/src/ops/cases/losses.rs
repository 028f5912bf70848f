//! Cases of `cross_entropy`.

use super::*;

pub fn losses(out: &mut Vec<Case>) {
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
