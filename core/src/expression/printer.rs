//! Printing expressions as shader text.
//!
//! A language is a small trait; what C-like languages share stands in its
//! default methods.

use std::fmt::Write;

use super::{Binary, Compare, Expression, Scalar, Term, Unary};

/// How a language writes the pieces of an expression.
pub trait Printer {
    /// The name of a scalar type.
    fn scalar(&self, s: Scalar) -> &'static str;
    /// A statement that names a value.
    fn bind(&self, name: &str, s: Scalar, value: &str) -> String;
    /// A float constant.
    fn f32(&self, value: f32) -> String;
    /// `yes` where `condition`, else `no`.
    fn select(&self, condition: &str, yes: &str, no: &str) -> String;
    /// Conversion between scalar types.
    fn cast(&self, from: Scalar, to: Scalar, value: &str) -> String;
    /// A function of one float.
    fn unary(&self, f: Unary, s: Scalar, a: &str) -> String;

    /// A function of two scalars of type `s`.
    fn binary(&self, f: Binary, s: Scalar, a: &str, b: &str) -> String {
        match f {
            Binary::Add => format!("{a} + {b}"),
            Binary::Sub => format!("{a} - {b}"),
            Binary::Mul => format!("{a} * {b}"),
            Binary::Div => format!("{a} / {b}"),
            // Those of floats are the prelude's, which keep NaN.
            Binary::Min if s == Scalar::F32 => format!("min_f32({a}, {b})"),
            Binary::Max if s == Scalar::F32 => format!("max_f32({a}, {b})"),
            Binary::Min => format!("min({a}, {b})"),
            Binary::Max => format!("max({a}, {b})"),
            Binary::Pow => format!("pow({a}, {b})"),
        }
    }

    /// A comparison.
    fn compare(&self, f: Compare, a: &str, b: &str) -> String {
        compare(f, a, b)
    }
}

fn compare(f: Compare, a: &str, b: &str) -> String {
    let sign = match f {
        Compare::Less => "<",
        Compare::LessEqual => "<=",
        Compare::Equal => "==",
        Compare::NotEqual => "!=",
    };
    format!("{a} {sign} {b}")
}

/// WGSL. Calls `as_f32(bits)`, `max_f32`, `min_f32`, `tanh_f32`, `erf_f32`,
/// `sin_f32`, `cos_f32` and `random_bits` of the prelude.
pub struct Wgsl;

impl Printer for Wgsl {
    fn scalar(&self, s: Scalar) -> &'static str {
        match s {
            Scalar::F32 => "f32",
            Scalar::U32 => "u32",
            Scalar::I32 => "i32",
            Scalar::Bool => "bool",
        }
    }

    fn bind(&self, name: &str, s: Scalar, value: &str) -> String {
        format!("let {name}: {} = {value};", self.scalar(s))
    }

    fn f32(&self, value: f32) -> String {
        if value.is_finite() {
            format!("{value:e}f")
        } else {
            // WGSL has no literal for these and refuses to compute one.
            format!("as_f32(0x{:08x}u)", value.to_bits())
        }
    }

    fn select(&self, condition: &str, yes: &str, no: &str) -> String {
        format!("select({no}, {yes}, {condition})")
    }

    fn compare(&self, f: Compare, a: &str, b: &str) -> String {
        match f {
            // `x != x` must find NaN, but naga takes `!=` as false for it.
            Compare::NotEqual => format!("!({a} == {b})"),
            _ => compare(f, a, b),
        }
    }

    fn cast(&self, _from: Scalar, to: Scalar, value: &str) -> String {
        format!("{}({value})", self.scalar(to))
    }

    fn unary(&self, f: Unary, _s: Scalar, a: &str) -> String {
        match f {
            Unary::Neg => format!("-{a}"),
            Unary::Abs => format!("abs({a})"),
            Unary::Exp => format!("exp({a})"),
            Unary::Log => format!("log({a})"),
            Unary::Sqrt => format!("sqrt({a})"),
            Unary::Rsqrt => format!("inverseSqrt({a})"),
            Unary::Tanh => format!("tanh_f32({a})"),
            Unary::Erf => format!("erf_f32({a})"),
            Unary::Sin => format!("sin_f32({a})"),
            Unary::Cos => format!("cos_f32({a})"),
            Unary::Floor => format!("floor({a})"),
        }
    }
}

/// Prints the terms as statements; returns them with the names of the outputs.
/// `load(k)` is the text of input `k` at the current position, `at(k, i)` that
/// of its element `i`, and `position` names the linear index in the output.
pub fn print(
    e: &Expression,
    language: &dyn Printer,
    position: &str,
    load: impl Fn(usize) -> String,
    at: impl Fn(usize, usize) -> String,
) -> (String, Vec<String>) {
    let types = e.types();
    let name = |id: u32| format!("t{id}");
    let mut text = String::new();
    for (id, term) in e.terms.iter().enumerate() {
        let value = match *term {
            Term::Input(k) => load(k as usize),
            Term::At(k, i) => at(k as usize, i as usize),
            Term::F32(bits) => language.f32(f32::from_bits(bits)),
            Term::U32(x) => format!("{x}u"),
            Term::I32(x) => {
                if x == i32::MIN {
                    "(-2147483647 - 1)".to_string()
                } else {
                    format!("{x}")
                }
            }
            Term::Unary(f, a) => language.unary(f, types[a as usize], &name(a)),
            Term::Binary(f, a, b) => language.binary(f, types[a as usize], &name(a), &name(b)),
            Term::Compare(f, a, b) => language.compare(f, &name(a), &name(b)),
            Term::Select(c, a, b) => language.select(&name(c), &name(a), &name(b)),
            Term::Cast(to, a) => language.cast(types[a as usize], to, &name(a)),
            Term::Random { rng, stream, per_item } => {
                let w = |i| at(rng as usize, i);
                format!(
                    "random_bits({}, {}, {}, {}, {stream}u, {per_item}u, {position})",
                    w(0),
                    w(1),
                    w(2),
                    w(3)
                )
            }
        };
        writeln!(text, "    {}", language.bind(&name(id as u32), types[id], &value))
            .expect("writing to a string");
    }
    (text, e.outputs.iter().map(|o| name(*o)).collect())
}
