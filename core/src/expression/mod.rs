//! Elementwise expressions: the body of every [`map`](crate::ops::map) op, of
//! reduce prologues and of matmul epilogues.
//!
//! An [`Expression`] is a short straight-line program of typed [`Term`]s, each
//! used by later ones, with one or more outputs. It is printed into shader
//! text ([`printer`]), evaluated block by block on the CPU (in its backend) and
//! differentiated term by term ([`derivative`]). Users write it with [`E`],
//! whose operators read like arithmetic.

pub mod build;
pub mod derivative;
pub mod evaluate;
pub mod printer;

pub use build::E;
use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// The types in which terms compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scalar {
    /// 32-bit float.
    F32,
    /// Unsigned 32-bit, wrapping.
    U32,
    /// Signed 32-bit, wrapping.
    I32,
    /// A truth value.
    Bool,
}

impl From<DType> for Scalar {
    fn from(dtype: DType) -> Scalar {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Scalar::F32,
            DType::U32 | DType::U8 => Scalar::U32,
            DType::I32 => Scalar::I32,
        }
    }
}

/// Functions of one float (Neg and Abs also of i32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Abs,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Erf,
    Sin,
    Cos,
    Floor,
}

/// Functions of two scalars of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Pow,
}

/// Comparisons of two scalars of one type; the result is a [`Scalar::Bool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Compare {
    Less,
    LessEqual,
    Equal,
    NotEqual,
}

/// Position of a term in its expression.
pub type TermId = u32;

/// One line of an expression. Operands stand at lower positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Term {
    /// The element of input `.0` at the current position (broadcast).
    Input(u32),
    /// Element `.1` of input `.0`, whatever the position: a step scalar.
    At(u32, u32),
    /// A float constant, by its bits so that terms can be compared.
    F32(u32),
    /// An unsigned constant.
    U32(u32),
    /// A signed constant.
    I32(i32),
    /// A function of one operand.
    Unary(Unary, TermId),
    /// A function of two operands.
    Binary(Binary, TermId, TermId),
    /// A comparison.
    Compare(Compare, TermId, TermId),
    /// `if .0 { .1 } else { .2 }`, both evaluated.
    Select(TermId, TermId, TermId),
    /// A conversion. Float to integer truncates towards zero and saturates;
    /// NaN becomes 0.
    Cast(Scalar, TermId),
    /// 32 random bits: Philox of (seed, step, `stream`, element of the whole
    /// batch). Input `rng` is the step's [`Rng`](crate::graph::RNG_WORDS)
    /// leaf; `per_item` elements belong to one item of the batch (0: the
    /// tensor does not depend on the batch).
    Random {
        /// Which input holds seed, step and item offset.
        rng: u32,
        /// The drawing op's number.
        stream: u32,
        /// Elements of one batch item.
        per_item: u32,
    },
}

impl Term {
    /// A float constant.
    pub fn f32(value: f32) -> Term {
        Term::F32(value.to_bits())
    }

    /// Operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = TermId> + use<> {
        let (n, ids) = match *self {
            Term::Unary(_, a) | Term::Cast(_, a) => (1, [a, 0, 0]),
            Term::Binary(_, a, b) | Term::Compare(_, a, b) => (2, [a, b, 0]),
            Term::Select(c, a, b) => (3, [c, a, b]),
            _ => (0, [0; 3]),
        };
        ids.into_iter().take(n)
    }

    /// The same term with every operand replaced.
    pub fn with_operands(self, mut f: impl FnMut(TermId) -> TermId) -> Term {
        match self {
            Term::Unary(u, a) => Term::Unary(u, f(a)),
            Term::Cast(s, a) => Term::Cast(s, f(a)),
            Term::Binary(b, x, y) => Term::Binary(b, f(x), f(y)),
            Term::Compare(c, x, y) => Term::Compare(c, f(x), f(y)),
            Term::Select(c, x, y) => Term::Select(f(c), f(x), f(y)),
            leaf => leaf,
        }
    }
}

/// A straight-line elementwise program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expression {
    /// Storage types of the inputs.
    pub inputs: Vec<DType>,
    /// The program; every term is used.
    pub terms: Vec<Term>,
    /// The terms whose values are stored, in order of the outputs.
    pub outputs: Vec<TermId>,
}

impl Expression {
    /// The expression `input 0` of one f32 input.
    pub fn identity() -> Expression {
        Expression { inputs: vec![DType::F32], terms: vec![Term::Input(0)], outputs: vec![0] }
    }

    /// Whether this stores its only input unchanged.
    pub fn is_identity(&self) -> bool {
        self.inputs.len() == 1 && self.outputs == [0] && self.terms == [Term::Input(0)]
    }

    /// The type of every term.
    pub fn types(&self) -> Vec<Scalar> {
        let mut types: Vec<Scalar> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            types.push(match *term {
                Term::Input(k) | Term::At(k, _) => self.inputs[k as usize].into(),
                Term::F32(_) => Scalar::F32,
                Term::U32(_) | Term::Random { .. } => Scalar::U32,
                Term::I32(_) => Scalar::I32,
                Term::Unary(_, a) | Term::Binary(_, a, _) => types[a as usize],
                Term::Compare(..) => Scalar::Bool,
                Term::Select(_, a, _) => types[a as usize],
                Term::Cast(s, _) => s,
            });
        }
        types
    }

    /// The first term whose operands have types that it cannot take.
    pub fn ill_typed(&self) -> Option<Term> {
        let types = self.types();
        let of = |id: TermId| types[id as usize];
        let bad = |t: &Term| match *t {
            Term::Unary(Unary::Neg | Unary::Abs, a) => !matches!(of(a), Scalar::F32 | Scalar::I32),
            Term::Unary(_, a) => of(a) != Scalar::F32,
            Term::Binary(_, a, b) => of(a) != of(b) || of(a) == Scalar::Bool,
            Term::Compare(_, a, b) => of(a) != of(b) || of(a) == Scalar::Bool,
            Term::Select(c, a, b) => of(c) != Scalar::Bool || of(a) != of(b),
            Term::Cast(to, _) => to == Scalar::Bool,
            _ => false,
        };
        self.terms.iter().copied().find(bad)
    }

    /// Whether input `k` is read at the current position (and not only as a
    /// whole through [`Term::At`] or [`Term::Random`]).
    pub fn reads_elementwise(&self, k: usize) -> bool {
        self.terms.contains(&Term::Input(k as u32))
    }

    /// Scalar operations per element, the flop count of the cost model
    /// (transcendental functions count as 8).
    pub fn flops(&self) -> u64 {
        self.terms
            .iter()
            .map(|t| match t {
                Term::Input(_) | Term::At(..) | Term::F32(_) | Term::U32(_) | Term::I32(_) => 0,
                Term::Unary(Unary::Neg | Unary::Abs | Unary::Floor, _) => 1,
                Term::Unary(..) | Term::Binary(Binary::Pow, ..) => 8,
                Term::Random { .. } => 80,
                _ => 1,
            })
            .sum()
    }

    /// Replaces input `hole` by output `output` of `inner`. The result's
    /// inputs are ours without `hole`, then those of `inner`; equal inputs are
    /// merged later by [`Expression::merge_inputs`].
    pub fn substitute(&self, hole: usize, inner: &Expression, output: usize) -> Expression {
        let mut out = build::Flat::new(Vec::new());
        let kept = self.inputs.len() - 1;
        out.inputs =
            self.inputs.iter().enumerate().filter(|(k, _)| *k != hole).map(|(_, d)| *d).collect();
        out.inputs.extend(&inner.inputs);
        let inner_ids = out.append(inner, |k| (kept + k as usize) as u32);
        let result = inner_ids[inner.outputs[output] as usize];
        let mut ids: Vec<TermId> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let shifted = |k: u32| if (k as usize) > hole { k - 1 } else { k };
            let id = match *term {
                Term::Input(k) if k as usize == hole => result,
                Term::Input(k) => out.push(Term::Input(shifted(k))),
                Term::At(k, i) => out.push(Term::At(shifted(k), i)),
                Term::Random { rng, stream, per_item } => {
                    out.push(Term::Random { rng: shifted(rng), stream, per_item })
                }
                t => out.push(t.with_operands(|a| ids[a as usize])),
            };
            ids.push(id);
        }
        out.finish(self.outputs.iter().map(|o| ids[*o as usize]).collect())
    }

    /// Renumbers the inputs: old input `k` becomes `map[k]` of `inputs`.
    pub fn merge_inputs(&self, map: &[usize], inputs: Vec<DType>) -> Expression {
        let mut out = build::Flat::new(inputs);
        let ids = out.append(self, |k| map[k as usize] as u32);
        out.finish(self.outputs.iter().map(|o| ids[*o as usize]).collect())
    }
}
