//! Writing expressions: the operator-overloaded handle [`E`] and the flattener
//! that shares equal terms and folds constants.

use std::collections::HashMap;
use std::ops;
use std::rc::Rc;

use super::{Binary, Compare, Expression, Scalar, Term, TermId, Unary};
use crate::dtype::DType;

/// A handle to an expression under construction. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct E(Rc<Tree>);

#[derive(Debug)]
enum Tree {
    Leaf(Term),
    Unary(Unary, E),
    Binary(Binary, E, E),
    Compare(Compare, E, E),
    Select(E, E, E),
    Cast(Scalar, E),
}

impl E {
    /// Input `k` at the current position.
    pub fn input(k: usize) -> E {
        E::leaf(Term::Input(k as u32))
    }

    /// Element `index` of input `k`, whatever the position.
    pub fn at(k: usize, index: usize) -> E {
        E::leaf(Term::At(k as u32, index as u32))
    }

    /// A float constant.
    pub fn constant(value: f32) -> E {
        E::leaf(Term::f32(value))
    }

    /// An unsigned constant.
    pub fn u32(value: u32) -> E {
        E::leaf(Term::U32(value))
    }

    /// A signed constant.
    pub fn i32(value: i32) -> E {
        E::leaf(Term::I32(value))
    }

    /// 32 random bits; see [`Term::Random`].
    pub fn random(rng: usize, stream: u32, per_item: usize) -> E {
        E::leaf(Term::Random { rng: rng as u32, stream, per_item: per_item as u32 })
    }

    fn leaf(term: Term) -> E {
        E(Rc::new(Tree::Leaf(term)))
    }

    fn unary(&self, f: Unary) -> E {
        E(Rc::new(Tree::Unary(f, self.clone())))
    }

    fn binary(&self, f: Binary, other: impl Into<E>) -> E {
        E(Rc::new(Tree::Binary(f, self.clone(), other.into())))
    }

    fn compare(&self, f: Compare, other: impl Into<E>) -> E {
        E(Rc::new(Tree::Compare(f, self.clone(), other.into())))
    }

    /// e to the power of self.
    pub fn exp(&self) -> E {
        self.unary(Unary::Exp)
    }
    /// Natural logarithm.
    pub fn log(&self) -> E {
        self.unary(Unary::Log)
    }
    /// Square root.
    pub fn sqrt(&self) -> E {
        self.unary(Unary::Sqrt)
    }
    /// One over the square root.
    pub fn rsqrt(&self) -> E {
        self.unary(Unary::Rsqrt)
    }
    /// Hyperbolic tangent.
    pub fn tanh(&self) -> E {
        self.unary(Unary::Tanh)
    }
    /// The error function.
    pub fn erf(&self) -> E {
        self.unary(Unary::Erf)
    }
    /// Sine of radians.
    pub fn sin(&self) -> E {
        self.unary(Unary::Sin)
    }
    /// Cosine of radians.
    pub fn cos(&self) -> E {
        self.unary(Unary::Cos)
    }
    /// Largest integer not above self.
    pub fn floor(&self) -> E {
        self.unary(Unary::Floor)
    }
    /// Absolute value.
    pub fn abs(&self) -> E {
        self.unary(Unary::Abs)
    }
    /// The larger of two.
    pub fn max(&self, other: impl Into<E>) -> E {
        self.binary(Binary::Max, other)
    }
    /// The smaller of two.
    pub fn min(&self, other: impl Into<E>) -> E {
        self.binary(Binary::Min, other)
    }
    /// self to the power of `other`; defined for self > 0.
    pub fn pow(&self, other: impl Into<E>) -> E {
        self.binary(Binary::Pow, other)
    }
    /// self < other.
    pub fn less(&self, other: impl Into<E>) -> E {
        self.compare(Compare::Less, other)
    }
    /// self ≤ other.
    pub fn less_equal(&self, other: impl Into<E>) -> E {
        self.compare(Compare::LessEqual, other)
    }
    /// self = other.
    pub fn equal(&self, other: impl Into<E>) -> E {
        self.compare(Compare::Equal, other)
    }
    /// self ≠ other.
    pub fn not_equal(&self, other: impl Into<E>) -> E {
        self.compare(Compare::NotEqual, other)
    }
    /// `yes` where self (a truth value) holds, else `no`.
    pub fn select(&self, yes: impl Into<E>, no: impl Into<E>) -> E {
        E(Rc::new(Tree::Select(self.clone(), yes.into(), no.into())))
    }
    /// Conversion to another scalar type.
    pub fn cast(&self, to: Scalar) -> E {
        E(Rc::new(Tree::Cast(to, self.clone())))
    }
    /// A float in [0, 1) from 32 random bits.
    pub fn unit(&self) -> E {
        // (bits >> 8) / 2^24, with the shift as a division: exact in u32.
        self.binary(Binary::Div, E::u32(256)).cast(Scalar::F32) * (1.0 / 16_777_216.0)
    }
}

/// Activations, in terms that neither overflow nor cancel.
impl E {
    /// 1 / (1 + e^−x), where e^−x does not overflow; below −80 it is e⁻⁸⁰.
    pub fn sigmoid(&self) -> E {
        1.0 / ((-self.max(-80.0)).exp() + 1.0)
    }
    /// log(1 + eˣ) as m + log(e^(x−m) + e^−m) with m = max(x, 0), in which
    /// neither power overflows, and the gradients through m cancel.
    pub fn softplus(&self) -> E {
        let m = self.max(0.0);
        let (up, down) = ((self - &m).exp(), (-m.clone()).exp());
        m + (up + down).log()
    }
    /// x·sigmoid(x), as S. Elfwing, E. Uchibe, K. Doya, 2017; also called swish.
    pub fn silu(&self) -> E {
        self * self.sigmoid()
    }
    /// x·Φ(x), as D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.
    pub fn gelu(&self) -> E {
        self * ((self * std::f32::consts::FRAC_1_SQRT_2).erf() * 0.5 + 0.5)
    }
    /// [`E::gelu`] with Φ approximated through tanh, as GPT-2 has it.
    pub fn gelu_tanh(&self) -> E {
        // √(2/π).
        let z = (self + self * self * self * 0.044_715) * 0.797_884_6;
        self * (z.tanh() * 0.5 + 0.5)
    }
    /// x where positive, else `slope`·x.
    pub fn leaky_relu(&self, slope: f32) -> E {
        E::constant(0.0).less(self).select(self, self * slope)
    }
    /// Held within [low, high].
    pub fn clamp(&self, low: f32, high: f32) -> E {
        self.max(low).min(high)
    }
}

impl From<f32> for E {
    fn from(value: f32) -> E {
        E::constant(value)
    }
}

impl From<&E> for E {
    fn from(value: &E) -> E {
        value.clone()
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $binary:expr) => {
        impl<T: Into<E>> ops::$trait<T> for E {
            type Output = E;
            fn $method(self, other: T) -> E {
                self.binary($binary, other)
            }
        }
        impl<T: Into<E>> ops::$trait<T> for &E {
            type Output = E;
            fn $method(self, other: T) -> E {
                self.binary($binary, other)
            }
        }
        impl ops::$trait<E> for f32 {
            type Output = E;
            fn $method(self, other: E) -> E {
                E::constant(self).binary($binary, other)
            }
        }
    };
}
operator!(Add, add, Binary::Add);
operator!(Sub, sub, Binary::Sub);
operator!(Mul, mul, Binary::Mul);
operator!(Div, div, Binary::Div);

impl ops::Neg for E {
    type Output = E;
    fn neg(self) -> E {
        self.unary(Unary::Neg)
    }
}

impl Expression {
    /// Flattens the trees of all outputs into one program.
    pub fn new(inputs: Vec<DType>, outputs: &[E]) -> Expression {
        let mut flat = Flat::new(inputs);
        let mut seen = HashMap::new();
        let outputs = outputs.iter().map(|e| flat.flatten(e, &mut seen)).collect();
        flat.finish(outputs)
    }
}

/// A program under construction: equal terms are shared, constants folded.
pub(super) struct Flat {
    pub inputs: Vec<DType>,
    pub terms: Vec<Term>,
    index: HashMap<Term, TermId>,
}

impl Flat {
    pub fn new(inputs: Vec<DType>) -> Flat {
        Flat { inputs, terms: Vec::new(), index: HashMap::new() }
    }

    fn flatten(&mut self, e: &E, seen: &mut HashMap<*const Tree, TermId>) -> TermId {
        if let Some(id) = seen.get(&Rc::as_ptr(&e.0)) {
            return *id;
        }
        let term = match &*e.0 {
            Tree::Leaf(t) => *t,
            Tree::Unary(f, a) => Term::Unary(*f, self.flatten(a, seen)),
            Tree::Binary(f, a, b) => Term::Binary(*f, self.flatten(a, seen), self.flatten(b, seen)),
            Tree::Compare(f, a, b) => {
                Term::Compare(*f, self.flatten(a, seen), self.flatten(b, seen))
            }
            Tree::Select(c, a, b) => {
                Term::Select(self.flatten(c, seen), self.flatten(a, seen), self.flatten(b, seen))
            }
            Tree::Cast(s, a) => Term::Cast(*s, self.flatten(a, seen)),
        };
        let id = self.push(term);
        seen.insert(Rc::as_ptr(&e.0), id);
        id
    }

    fn constant(&self, id: TermId) -> Option<f32> {
        match self.terms[id as usize] {
            Term::F32(bits) => Some(f32::from_bits(bits)),
            _ => None,
        }
    }

    /// Adds a term, or finds the equal one. Folds only where the result is the
    /// same bits for every operand value (x·1, x+(-0) and the like are exact;
    /// x·0 is not, because of NaN).
    pub fn push(&mut self, term: Term) -> TermId {
        let term = match term {
            Term::Binary(f, a, b) => match (f, self.constant(a), self.constant(b)) {
                (Binary::Add, Some(x), Some(y)) => Term::f32(x + y),
                (Binary::Sub, Some(x), Some(y)) => Term::f32(x - y),
                (Binary::Mul, Some(x), Some(y)) => Term::f32(x * y),
                (Binary::Mul, Some(1.0), None) => return b,
                (Binary::Mul | Binary::Div, None, Some(1.0)) => return a,
                (Binary::Add, Some(x), None) if x == 0.0 && x.is_sign_negative() => return b,
                (Binary::Add, None, Some(x)) if x == 0.0 && x.is_sign_negative() => return a,
                (Binary::Sub, None, Some(x)) if x == 0.0 && x.is_sign_positive() => return a,
                _ => term,
            },
            Term::Unary(Unary::Neg, a) => match self.constant(a) {
                Some(x) => Term::f32(-x),
                None => term,
            },
            _ => term,
        };
        if let Some(id) = self.index.get(&term) {
            return *id;
        }
        let id = self.terms.len() as TermId;
        self.terms.push(term);
        self.index.insert(term, id);
        id
    }

    /// Adds all terms of `other`, its input `k` becoming `input(k)`; returns
    /// where each of them went.
    pub fn append(&mut self, other: &Expression, input: impl Fn(u32) -> u32) -> Vec<TermId> {
        let mut ids: Vec<TermId> = Vec::with_capacity(other.terms.len());
        for term in &other.terms {
            let id = match *term {
                Term::Input(k) => self.push(Term::Input(input(k))),
                Term::At(k, i) => self.push(Term::At(input(k), i)),
                Term::Random { rng, stream, per_item } => {
                    self.push(Term::Random { rng: input(rng), stream, per_item })
                }
                t => self.push(t.with_operands(|a| ids[a as usize])),
            };
            ids.push(id);
        }
        ids
    }

    /// Drops unused terms and closes the program.
    pub fn finish(self, outputs: Vec<TermId>) -> Expression {
        let mut used = vec![false; self.terms.len()];
        outputs.iter().for_each(|o| used[*o as usize] = true);
        for id in (0..self.terms.len()).rev() {
            if used[id] {
                self.terms[id].operands().for_each(|a| used[a as usize] = true);
            }
        }
        let mut place = vec![0; self.terms.len()];
        let mut terms = Vec::new();
        for (id, term) in self.terms.iter().enumerate() {
            if used[id] {
                place[id] = terms.len() as TermId;
                terms.push(term.with_operands(|a| place[a as usize]));
            }
        }
        let outputs = outputs.iter().map(|o| place[*o as usize]).collect();
        Expression { inputs: self.inputs, terms, outputs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_folds() {
        let x = E::input(0);
        let e = Expression::new(vec![DType::F32], &[(&x * 1.0) + (x.exp() * x.exp())]);
        // x, exp(x), exp·exp, x + …
        assert_eq!(e.terms.len(), 4);
    }

    #[test]
    fn substitution_fuses() {
        let relu = Expression::new(vec![DType::F32], &[E::input(0).max(0.0)]);
        let add = Expression::new(vec![DType::F32; 2], &[E::input(0) + E::input(1)]);
        let fused = relu.substitute(0, &add, 0);
        assert_eq!(
            fused,
            Expression::new(vec![DType::F32; 2], &[(E::input(0) + E::input(1)).max(0.0)])
        );
    }
}
