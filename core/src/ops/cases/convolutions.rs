//! Cases of `conv` and its gradients.

use super::*;
use crate::expression::{E, Expression};

/// Inputs with weights: one to three dimensions, 1×1, kernels larger than the
/// input, strides larger than the kernel, dilation, groups of one channel and
/// of more, and sizes at the edges of tiles.
fn samples() -> Vec<(Vec<usize>, Vec<usize>, Convolution)> {
    let one = || Convolution::new(1);
    let two = || Convolution::new(2);
    let three = || Convolution::new(3);
    vec![
        (vec![1, 1, 1], vec![1, 1, 1], one()),
        (vec![2, 3, 17], vec![5, 3, 4], one().stride(&[3]).padding(&[2])),
        (vec![1, 9, 11], vec![10, 9, 3], one().dilation(&[4])),
        // 1×1, with and without stride.
        (vec![3, 17, 5, 7], vec![33, 17, 1, 1], two()),
        (vec![2, 12, 6, 5], vec![9, 12, 1, 1], two().stride(&[2, 3])),
        (vec![2, 8, 16, 17], vec![16, 8, 1, 1], two()),
        // The usual 3×3, and strides; M at the edges of the tiles.
        (vec![2, 3, 9, 11], vec![8, 3, 3, 3], two().padding(&[1, 1])),
        (vec![2, 16, 8, 9], vec![17, 16, 3, 3], two().stride(&[2, 2]).padding(&[1, 1])),
        (vec![1, 7, 19, 18], vec![65, 7, 3, 3], two().padding(&[1, 1])),
        (vec![5, 65, 3, 3], vec![64, 65, 3, 3], two().padding(&[1, 1])),
        (vec![1, 3, 23, 21], vec![10, 3, 7, 7], two().stride(&[2, 2]).padding(&[3, 3])),
        // A kernel larger than the input, a stride larger than the kernel.
        (vec![2, 9, 3, 2], vec![8, 9, 5, 6], two().padding(&[2, 3])),
        (vec![2, 8, 11, 10], vec![9, 8, 2, 1], two().stride(&[4, 3]).padding(&[1, 2])),
        (vec![1, 8, 4, 5], vec![8, 8, 1, 1], two().stride(&[7, 9])),
        // Dilation that shares factors with the stride, or not.
        (vec![1, 9, 13, 12], vec![8, 9, 3, 2], two().stride(&[2, 3]).dilation(&[2, 2])),
        (vec![1, 8, 14, 15], vec![8, 8, 3, 3], two().stride(&[4, 6]).dilation(&[6, 4])),
        // Groups.
        (vec![2, 6, 7, 8], vec![6, 1, 3, 3], two().padding(&[1, 1]).groups(6)),
        (vec![2, 5, 9, 6], vec![10, 1, 3, 2], two().stride(&[2, 2]).padding(&[1, 0]).groups(5)),
        (vec![1, 18, 6, 7], vec![27, 6, 3, 3], two().padding(&[1, 1]).groups(3)),
        (vec![1, 16, 5, 5], vec![4, 4, 2, 2], two().groups(4)),
        // Three dimensions.
        (vec![1, 2, 5, 6, 7], vec![9, 2, 3, 3, 3], three().padding(&[1, 1, 1])),
        (vec![2, 8, 4, 5, 3], vec![8, 8, 2, 2, 2], three().stride(&[2, 2, 2])),
        (
            vec![1, 3, 5, 4, 6],
            vec![3, 1, 3, 2, 3],
            three().stride(&[1, 2, 3]).padding(&[1, 0, 2]).groups(3),
        ),
    ]
}

pub fn convolutions(out: &mut Vec<Case>) {
    for (input, weight, c) in samples() {
        let x = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        let mut label = format!("{}_{}", x(&input), x(&weight));
        if c.stride.iter().any(|s| *s != 1) {
            label += &format!("_s{}", x(&c.stride));
        }
        if c.padding.iter().any(|p| *p != 0) {
            label += &format!("_p{}", x(&c.padding));
        }
        if c.dilation.iter().any(|e| *e != 1) {
            label += &format!("_d{}", x(&c.dilation));
        }
        if c.groups != 1 {
            label += &format!("_g{}", c.groups);
        }
        let g = c.geometry("conv", &input, &weight).expect("is sound");
        let output = c.output_shape("conv", &input, &weight).expect("is sound");
        // Terms of the sums of output, input's and weight's gradient.
        let forward = g.in_channels * g.taps();
        let to_input = g.out_channels * g.taps();
        let to_weight = g.batch * g.output_numel();
        let op = Op::Conv(Conv::new(c.clone()));
        let inputs = vec![normal(&input), normal(&weight)];
        let case = Case::new(format!("conv/{label}"), op, inputs);
        out.push(case.terms(forward, to_input.max(to_weight)));
        let op = ConvInputGradient { convolution: c.clone(), input: input.clone() };
        let name = format!("conv_input_gradient/{label}");
        let inputs = vec![normal(&weight), normal(&output)];
        let case = Case::new(name, Op::ConvInputGradient(op), inputs);
        out.push(case.terms(to_input, forward.max(to_weight)));
        let op = ConvWeightGradient { convolution: c, kernel: weight[2..].to_vec() };
        let name = format!("conv_weight_gradient/{label}");
        let inputs = vec![normal(&input), normal(&output)];
        let case = Case::new(name, Op::ConvWeightGradient(op), inputs);
        out.push(case.terms(to_weight, 1).forward_only());
    }
    // Epilogues: a bias for each channel with relu, a residual.
    let epilogues: [(&str, Vec<usize>, E); 2] = [
        ("bias_relu", vec![9, 1, 1], (E::input(0) + E::input(1)).max(0.0)),
        ("add", vec![2, 9, 5, 6], E::input(0) + E::input(1)),
    ];
    for (name, shape, e) in epilogues {
        for (groups, kernel) in [(1, 3), (3, 1)] {
            let epilogue = Expression::new(vec![DType::F32; 2], std::slice::from_ref(&e));
            let padding = [kernel / 2, kernel / 2];
            let convolution = Convolution::new(2).padding(&padding).groups(groups);
            let op = Conv { convolution, epilogue };
            let weight = [9, 6 / groups, kernel, kernel];
            let inputs = vec![normal(&[2, 6, 5, 6]), normal(&weight), normal(&shape)];
            let label = format!("conv/epilogue_{name}_g{groups}");
            let case = Case::new(label, Op::Conv(op), inputs);
            out.push(case.terms(6 / groups * kernel * kernel + 1, 1).forward_only());
        }
    }
}
