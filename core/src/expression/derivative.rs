//! Reverse-mode differentiation of one expression.

use super::build::Flat;
use super::{Binary, Compare, Expression, Scalar, Term, TermId, Unary};

/// The gradient of input `k` at one position, as an expression whose inputs
/// are our inputs, then our outputs, then the gradients of our outputs (f32).
/// Unused inputs remain listed. `None` where `k` has no influence through
/// floats. Output `j` counts only where `present[j]`.
///
/// Derivatives are stated through results where that is possible (relu, exp,
/// tanh, sqrt), and results that were stored are read back, so that the values
/// before an activation need not be kept.
pub fn vjp(e: &Expression, k: usize, present: &[bool]) -> Option<Expression> {
    let types = e.types();
    if types.is_empty() || Scalar::from(e.inputs[k]) != Scalar::F32 {
        return None;
    }
    let mut inputs = e.inputs.clone();
    inputs.extend(e.outputs.iter().map(|o| match types[*o as usize] {
        Scalar::F32 => crate::dtype::DType::F32,
        Scalar::I32 => crate::dtype::DType::I32,
        _ => crate::dtype::DType::U32,
    }));
    inputs.extend(e.outputs.iter().map(|_| crate::dtype::DType::F32));
    let (first_output, first_gradient) = (e.inputs.len(), e.inputs.len() + e.outputs.len());
    let mut flat = Flat::new(inputs);

    // Values of all terms, those that are stored read back from storage.
    let mut value: Vec<TermId> = Vec::with_capacity(e.terms.len());
    for (id, term) in e.terms.iter().enumerate() {
        let stored = e.outputs.iter().position(|o| *o as usize == id);
        let leaf = term.operands().next().is_none();
        value.push(match stored {
            Some(j) if !leaf => flat.push(Term::Input((first_output + j) as u32)),
            _ => flat.push(term.with_operands(|a| value[a as usize])),
        });
    }

    let mut adjoint: Vec<Option<TermId>> = vec![None; e.terms.len()];
    let add = |flat: &mut Flat, slot: &mut Option<TermId>, g: TermId| {
        *slot = Some(match *slot {
            Some(old) => flat.push(Term::Binary(Binary::Add, old, g)),
            None => g,
        });
    };
    for (j, o) in e.outputs.iter().enumerate() {
        if present[j] && types[*o as usize] == Scalar::F32 {
            let g = flat.push(Term::Input((first_gradient + j) as u32));
            add(&mut flat, &mut adjoint[*o as usize], g);
        }
    }
    for id in (0..e.terms.len()).rev() {
        let Some(g) = adjoint[id] else { continue };
        for (operand, local) in partials(&mut flat, e, &types, &value, id, g) {
            add(&mut flat, &mut adjoint[operand as usize], local);
        }
    }
    let leaf = e.terms.iter().position(|t| *t == Term::Input(k as u32))?;
    let out = adjoint[leaf]?;
    Some(flat.finish(vec![out]))
}

/// Contributions of term `id` with adjoint `g` to its float operands.
fn partials(
    flat: &mut Flat,
    e: &Expression,
    types: &[Scalar],
    value: &[TermId],
    id: usize,
    g: TermId,
) -> Vec<(TermId, TermId)> {
    let t = value[id];
    let mut c = |x: f32| flat.push(Term::f32(x));
    let (zero, one, half, two) = (c(0.0), c(1.0), c(0.5), c(2.0));
    let bin = |flat: &mut Flat, f, a, b| flat.push(Term::Binary(f, a, b));
    let neg = |flat: &mut Flat, a| flat.push(Term::Unary(Unary::Neg, a));
    match e.terms[id] {
        Term::Unary(f, a) => {
            let x = value[a as usize];
            let local = match f {
                Unary::Neg => return vec![(a, neg(flat, g))],
                Unary::Floor => return vec![],
                Unary::Exp => t,
                Unary::Log => return vec![(a, bin(flat, Binary::Div, g, x))],
                Unary::Sqrt => {
                    let d = bin(flat, Binary::Mul, two, t);
                    return vec![(a, bin(flat, Binary::Div, g, d))];
                }
                Unary::Rsqrt => {
                    let t2 = bin(flat, Binary::Mul, t, t);
                    let t3 = bin(flat, Binary::Mul, t2, t);
                    let h = bin(flat, Binary::Mul, half, t3);
                    neg(flat, h)
                }
                Unary::Tanh => {
                    let t2 = bin(flat, Binary::Mul, t, t);
                    bin(flat, Binary::Sub, one, t2)
                }
                Unary::Erf => {
                    let x2 = bin(flat, Binary::Mul, x, x);
                    let n = neg(flat, x2);
                    let ex = flat.push(Term::Unary(Unary::Exp, n));
                    let k = flat.push(Term::f32(std::f32::consts::FRAC_2_SQRT_PI));
                    bin(flat, Binary::Mul, k, ex)
                }
                Unary::Sin => flat.push(Term::Unary(Unary::Cos, x)),
                Unary::Cos => {
                    let s = flat.push(Term::Unary(Unary::Sin, x));
                    neg(flat, s)
                }
                Unary::Abs => {
                    if types[a as usize] != Scalar::F32 {
                        return vec![];
                    }
                    let below = flat.push(Term::Compare(Compare::Less, x, zero));
                    let above = flat.push(Term::Compare(Compare::Less, zero, x));
                    let minus = flat.push(Term::f32(-1.0));
                    let high = flat.push(Term::Select(above, one, zero));
                    flat.push(Term::Select(below, minus, high))
                }
            };
            vec![(a, bin(flat, Binary::Mul, g, local))]
        }
        Term::Binary(f, a, b) => {
            if types[id] != Scalar::F32 {
                return vec![];
            }
            let (x, y) = (value[a as usize], value[b as usize]);
            match f {
                Binary::Add => vec![(a, g), (b, g)],
                Binary::Sub => vec![(a, g), (b, neg(flat, g))],
                Binary::Mul => {
                    vec![(a, bin(flat, Binary::Mul, g, y)), (b, bin(flat, Binary::Mul, g, x))]
                }
                Binary::Div => {
                    let da = bin(flat, Binary::Div, g, y);
                    let m = bin(flat, Binary::Mul, da, t);
                    vec![(a, da), (b, neg(flat, m))]
                }
                Binary::Pow => {
                    let less = bin(flat, Binary::Sub, y, one);
                    let p = bin(flat, Binary::Pow, x, less);
                    let yp = bin(flat, Binary::Mul, y, p);
                    let da = bin(flat, Binary::Mul, g, yp);
                    let ln = flat.push(Term::Unary(Unary::Log, x));
                    let tl = bin(flat, Binary::Mul, t, ln);
                    vec![(a, da), (b, bin(flat, Binary::Mul, g, tl))]
                }
                Binary::Min | Binary::Max => {
                    let wins = |flat: &mut Flat, low: TermId, high: TermId| {
                        let (low, high) = if f == Binary::Max { (low, high) } else { (high, low) };
                        flat.push(Term::Compare(Compare::Less, low, high))
                    };
                    let constant = |id: TermId| matches!(e.terms[id as usize], Term::F32(_));
                    if constant(a) || constant(b) {
                        // Against a constant the result tells who won, and a
                        // tie gives no gradient, as in relu.
                        let (operand, bound) = if constant(b) { (a, y) } else { (b, x) };
                        let won = wins(flat, bound, t);
                        return vec![(operand, flat.push(Term::Select(won, g, zero)))];
                    }
                    // A tie shares the gradient, as in PyTorch.
                    let tie = flat.push(Term::Compare(Compare::Equal, x, y));
                    let shared = bin(flat, Binary::Mul, g, half);
                    let rest = flat.push(Term::Select(tie, shared, zero));
                    let (a_won, b_won) = (wins(flat, y, x), wins(flat, x, y));
                    let da = flat.push(Term::Select(a_won, g, rest));
                    let db = flat.push(Term::Select(b_won, g, rest));
                    vec![(a, da), (b, db)]
                }
            }
        }
        Term::Select(cond, a, b) => {
            if types[id] != Scalar::F32 {
                return vec![];
            }
            let cond = value[cond as usize];
            let da = flat.push(Term::Select(cond, g, zero));
            let db = flat.push(Term::Select(cond, zero, g));
            vec![(a, da), (b, db)]
        }
        Term::Cast(Scalar::F32, a) if types[a as usize] == Scalar::F32 => vec![(a, g)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::super::E;
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn relu_needs_only_its_result() {
        let relu = Expression::new(vec![DType::F32], &[E::input(0).max(0.0)]);
        let g = vjp(&relu, 0, &[true]).expect("differentiable");
        assert!(!g.reads_elementwise(0));
        assert!(g.reads_elementwise(1) && g.reads_elementwise(2));
    }

    #[test]
    fn integers_have_no_gradient() {
        let e = Expression::new(vec![DType::U8], &[E::input(0).cast(Scalar::F32) * 2.0]);
        assert!(vjp(&e, 0, &[true]).is_none());
    }
}
