//! Cases of `embedding`.

use super::*;

pub fn lookups(out: &mut Vec<Case>) {
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
