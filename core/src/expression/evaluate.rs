//! Evaluation at one position in float64: the reference of the tests.

use super::{Binary, Compare, Expression, Scalar, Term, Unary};
use crate::philox;

/// A value of any scalar type.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    F(f64),
    U(u32),
    I(i32),
    B(bool),
}

impl Value {
    /// As a float, whatever the type.
    pub fn float(self) -> f64 {
        match self {
            Value::F(x) => x,
            Value::U(x) => f64::from(x),
            Value::I(x) => f64::from(x),
            Value::B(x) => f64::from(u8::from(x)),
        }
    }
}

/// Evaluates all outputs at `position` (the linear index in the output).
/// `element(k)` is input `k` there; `at(k, i)` is element `i` of input `k`.
pub fn evaluate(
    e: &Expression,
    position: usize,
    element: impl Fn(usize) -> Value,
    at: impl Fn(usize, usize) -> Value,
) -> Vec<Value> {
    let mut v: Vec<Value> = Vec::with_capacity(e.terms.len());
    for term in &e.terms {
        let get = |id: u32| v[id as usize];
        let value = match *term {
            Term::Input(k) => element(k as usize),
            Term::At(k, i) => at(k as usize, i as usize),
            Term::F32(bits) => Value::F(f64::from(f32::from_bits(bits))),
            Term::U32(x) => Value::U(x),
            Term::I32(x) => Value::I(x),
            Term::Unary(f, a) => unary(f, get(a)),
            Term::Binary(f, a, b) => binary(f, get(a), get(b)),
            Term::Compare(f, a, b) => Value::B(compare(f, get(a), get(b))),
            Term::Select(c, a, b) => {
                if get(c) == Value::B(true) {
                    get(a)
                } else {
                    get(b)
                }
            }
            Term::Cast(to, a) => cast(to, get(a)),
            Term::Random { rng, stream, per_item } => {
                let word = |i| at(rng as usize, i).float() as u32;
                let index =
                    (u64::from(word(3)) * u64::from(per_item)).wrapping_add(position as u64);
                Value::U(
                    philox::philox4x32(
                        [index as u32, (index >> 32) as u32, stream, word(2)],
                        [word(0), word(1)],
                    )[0],
                )
            }
        };
        v.push(value);
    }
    e.outputs.iter().map(|o| v[*o as usize]).collect()
}

fn unary(f: Unary, a: Value) -> Value {
    if let Value::I(x) = a {
        return Value::I(match f {
            Unary::Neg => x.wrapping_neg(),
            Unary::Abs => x.wrapping_abs(),
            _ => x,
        });
    }
    let x = a.float();
    Value::F(match f {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Floor => x.floor(),
    })
}

fn binary(f: Binary, a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::U(x), Value::U(y)) => Value::U(match f {
            Binary::Add => x.wrapping_add(y),
            Binary::Sub => x.wrapping_sub(y),
            Binary::Mul => x.wrapping_mul(y),
            // As WGSL defines it.
            Binary::Div => x.checked_div(y).unwrap_or(x),
            Binary::Min => x.min(y),
            Binary::Max => x.max(y),
            Binary::Pow => x.wrapping_pow(y),
        }),
        (Value::I(x), Value::I(y)) => Value::I(match f {
            Binary::Add => x.wrapping_add(y),
            Binary::Sub => x.wrapping_sub(y),
            Binary::Mul => x.wrapping_mul(y),
            Binary::Div => x.checked_div(y).unwrap_or(x),
            Binary::Min => x.min(y),
            Binary::Max => x.max(y),
            Binary::Pow => x.wrapping_pow(y.max(0) as u32),
        }),
        _ => {
            let (x, y) = (a.float(), b.float());
            Value::F(match f {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                // A NaN on either side stays.
                Binary::Min => {
                    if y < x || y.is_nan() {
                        y
                    } else {
                        x
                    }
                }
                Binary::Max => {
                    if y > x || y.is_nan() {
                        y
                    } else {
                        x
                    }
                }
                Binary::Pow => x.powf(y),
            })
        }
    }
}

fn compare(f: Compare, a: Value, b: Value) -> bool {
    let (x, y) = (a.float(), b.float());
    match f {
        Compare::Less => x < y,
        Compare::LessEqual => x <= y,
        Compare::Equal => x == y,
        Compare::NotEqual => x != y,
    }
}

fn cast(to: Scalar, a: Value) -> Value {
    match to {
        Scalar::F32 => Value::F(a.float()),
        Scalar::U32 => match a {
            Value::I(x) => Value::U(x as u32),
            _ => Value::U(a.float() as u32),
        },
        Scalar::I32 => match a {
            Value::U(x) => Value::I(x as i32),
            _ => Value::I(a.float() as i32),
        },
        Scalar::Bool => Value::B(a.float() != 0.0),
    }
}
