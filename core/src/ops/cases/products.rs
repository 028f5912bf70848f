//! Cases of `matmul`.

use super::*;
use crate::expression::{E, Expression};

pub fn products(out: &mut Vec<Case>) {
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
    // On both sides of every tile's size.
    for m in [1, 63, 64, 65, 255, 257, 499, 500, 513] {
        add(&[], (m, 67, 19), (false, true));
    }
    add(&[], (257, 384, 1152), (false, false));
    // Probabilities of attention times values.
    add(&[1, 8], (512, 32, 512), (false, false));
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
