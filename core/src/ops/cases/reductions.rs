//! Cases of `reduce`.

use super::*;
use crate::expression::{E, Expression};

pub fn reductions(out: &mut Vec<Case>) {
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
