//! Cases of `attention`, its gradient and `rope`.

use super::*;

/// Batch, queries, keys, heads, heads of keys, head size.
fn extents(sizes: [usize; 6]) -> ([usize; 4], [usize; 4]) {
    let [b, l, s, h, g, d] = sizes;
    ([b, l, h, d], [b, s, g, d])
}

/// A mask of keys: the first item's are all hidden, so that its rows see none;
/// of the others' every third.
fn mask(batch: usize, keys: usize) -> (TensorType, Fill) {
    let seen = |i: usize| u32::from(i >= keys && i % 3 != 1);
    let words = (0..batch * keys).map(seen).collect();
    (TensorType::new([batch, keys], DType::I32), Fill::Words(words))
}

pub fn attentions(out: &mut Vec<Case>) {
    for (sizes, causal, masked) in [
        ([1, 1, 1, 1, 1, 1], false, false),
        ([2, 1, 1, 2, 1, 64], true, false),
        ([1, 5, 3, 3, 1, 40], false, false),
        ([2, 5, 7, 2, 2, 80], false, true),
        ([1, 63, 63, 1, 1, 64], true, false),
        ([1, 65, 65, 4, 2, 40], true, false),
        ([3, 65, 65, 1, 1, 17], true, true),
        ([1, 64, 33, 2, 2, 128], false, false),
        ([1, 130, 31, 1, 1, 128], false, false),
        ([2, 33, 130, 3, 3, 80], false, true),
        ([1, 130, 130, 1, 1, 1], true, false),
        // More keys than a tile of the CPU has.
        ([1, 3, 515, 2, 1, 16], false, false),
        ([1, 290, 290, 1, 1, 8], true, false),
        ([2, 4, 600, 1, 1, 5], false, true),
    ] {
        let (q, k) = extents(sizes);
        let [b, l, s, h, g, d] = sizes;
        let mut label = format!("{b}x{l}x{s}_h{h}x{g}x{d}");
        let mut op = Attention::new(d);
        if causal {
            op = op.causal();
            label += "_causal";
        }
        let mut inputs = vec![normal(&q), normal(&k), normal(&k)];
        let mut gradient_inputs = inputs.clone();
        gradient_inputs.extend([normal(&q), normal(&[b, h, l]), normal(&q)]);
        if masked {
            label += "_masked";
            inputs.push(mask(b, s));
            gradient_inputs.push(mask(b, s));
        }
        let (forward, gradient) = (d + s, 2 * d + s + l * h / g);
        let case = Case::new(format!("attention/{label}"), Op::Attention(op.clone()), inputs);
        let case = case.terms(forward, gradient).ulps(4.0);
        // Of one key the probability is 1 whatever its score: the gradients of
        // q and k are 0, and there is nothing that an error is relative to.
        out.push(if s == 1 { case.forward_only() } else { case });
        let op = Op::AttentionGradient(AttentionGradient { forward: op });
        let case = Case::new(format!("attention_gradient/{label}"), op, gradient_inputs);
        out.push(case.terms(gradient, 1).ulps(4.0).forward_only());
    }
    // Scores near −120: 64 products of ±3.9 with noise, over a root of 8. A
    // unit of the last place of a score is 120 units of its exponential.
    for (length, causal) in [(640, true), (704, false), (704, true), (768, false)] {
        let shape = [1, length, 1, 64];
        let mut op = Attention::new(64);
        let mut label = format!("attention/logits_minus_120_{length}");
        if causal {
            op = op.causal();
            label += "_causal";
        }
        let inputs =
            vec![f(&shape, Fill::Around(3.9)), f(&shape, Fill::Around(-3.9)), normal(&shape)];
        let case = Case::new(label, Op::Attention(op), inputs);
        out.push(case.terms(64 + length, 128 + 2 * length).ulps(120.0));
    }
    for (shape, base, inverse) in [
        ([1, 1, 1, 2], 10_000.0, false),
        ([2, 7, 3, 6], 10_000.0, false),
        ([1, 300, 2, 64], 10_000.0, false),
        ([1, 65, 1, 128], 500_000.0, true),
        ([2, 33, 3, 80], 10_000.0, true),
    ] {
        let [b, l, h, d] = shape;
        let back = if inverse { "_inverse" } else { "" };
        let op = Op::Rope(Rope { base, inverse });
        let case = Case::new(format!("rope/{b}x{l}x{h}x{d}{back}"), op, vec![normal(&shape)]);
        out.push(case.terms(2, 2).ulps(4.0));
    }
}
