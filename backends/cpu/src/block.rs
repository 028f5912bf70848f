//! Evaluating an expression block by block: each term fills a register of
//! [`BLOCK`] elements, in loops of fixed length that vectorise. Registers are
//! 32-bit words; truth values are 0 and 1.

use multiversion::multiversion;
use plimsoll_core::dtype::DType;
use plimsoll_core::expression::{Binary, Compare, Expression, Scalar, Term, TermId, Unary};
use plimsoll_core::{philox, shape};

use crate::arena::Memory;
use crate::math;

/// Elements of a register. The two dozen registers of an optimizer's update and
/// a block of each of its tensors stay within 32 KiB, the smallest L1 cache.
pub const BLOCK: usize = 128;

/// One term's values.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Register(pub [u32; BLOCK]);

/// How an input is read over the iteration space.
#[derive(Clone, Debug)]
enum Layout {
    /// Element `i`.
    Linear,
    /// Element 0.
    Scalar,
    /// By strides over the collapsed sizes.
    Strided(Vec<usize>),
}

/// An expression prepared for an iteration space.
#[derive(Clone, Debug)]
pub struct Program {
    terms: Vec<Term>,
    types: Vec<Scalar>,
    /// The terms that are stored.
    pub outputs: Vec<u32>,
    dtypes: Vec<DType>,
    layouts: Vec<Layout>,
    sizes: Vec<usize>,
    /// Terms that are the same at every position, computed once a piece.
    uniform: Vec<TermId>,
    /// All others, computed for each block.
    varying: Vec<TermId>,
}

impl Program {
    /// Prepares `e` over `to`, its inputs having these shapes.
    pub fn new(e: &Expression, shapes: &[&[usize]], to: &[usize]) -> Program {
        let numel = shape::numel(to);
        let strided = |k: usize| {
            let n = shape::numel(shapes[k]);
            e.reads_elementwise(k) && n != numel && n != 1
        };
        let rows: Vec<Vec<usize>> = (0..shapes.len())
            .filter(|k| strided(*k))
            .map(|k| shape::broadcast_strides(shapes[k], to))
            .collect();
        let (sizes, rows) = shape::collapse(to, &rows);
        let mut rows = rows.into_iter();
        let layouts = (0..shapes.len())
            .map(|k| {
                if strided(k) {
                    Layout::Strided(rows.next().expect("one a strided input"))
                } else if shape::numel(shapes[k]) == 1 {
                    Layout::Scalar
                } else {
                    Layout::Linear
                }
            })
            .collect();
        let mut is_uniform: Vec<bool> = Vec::with_capacity(e.terms.len());
        for term in &e.terms {
            is_uniform.push(match *term {
                Term::Input(k) => shape::numel(shapes[k as usize]) == 1,
                Term::Random { .. } => false,
                t => t.operands().all(|a| is_uniform[a as usize]),
            });
        }
        let ids = |uniform: bool| {
            (0..e.terms.len() as TermId).filter(|t| is_uniform[*t as usize] == uniform).collect()
        };
        Program {
            uniform: ids(true),
            varying: ids(false),
            terms: e.terms.clone(),
            types: e.types(),
            outputs: e.outputs.clone(),
            dtypes: e.inputs.clone(),
            layouts,
            sizes,
        }
    }

    /// Registers for a piece of work of one thread, with all that is the same
    /// at every position filled in.
    ///
    /// # Safety
    /// Nobody may write to the inputs meanwhile.
    pub unsafe fn registers(&self, inputs: &[Memory]) -> Vec<Register> {
        let mut registers = vec![Register([0; BLOCK]); self.terms.len()];
        for id in &self.uniform {
            // SAFETY: the caller vouches for the inputs.
            unsafe { self.term(*id as usize, &mut registers, inputs, 0, BLOCK) };
        }
        registers
    }

    /// Fills `registers` for positions `start..start + len` (`len` ≤
    /// [`BLOCK`]) from the inputs' memories.
    ///
    /// # Safety
    /// Nobody may write to the inputs at these positions meanwhile.
    pub unsafe fn run(
        &self,
        registers: &mut [Register],
        inputs: &[Memory],
        start: usize,
        len: usize,
    ) {
        debug_assert!(len <= BLOCK);
        for id in &self.varying {
            // SAFETY: the caller vouches for the inputs.
            unsafe { self.term(*id as usize, registers, inputs, start, len) };
        }
    }

    /// Fills the register of one term.
    ///
    /// # Safety
    /// As [`Program::run`].
    unsafe fn term(
        &self,
        id: usize,
        registers: &mut [Register],
        inputs: &[Memory],
        start: usize,
        len: usize,
    ) {
        let (done, rest) = registers.split_at_mut(id);
        let out = &mut rest[0].0;
        match self.terms[id] {
            Term::Input(k) => {
                // SAFETY: the caller vouches for the inputs.
                unsafe { self.load(k as usize, inputs[k as usize], start, &mut out[..len]) };
            }
            // SAFETY: as above.
            Term::At(k, i) => {
                let dtype = self.dtypes[k as usize];
                out.fill(unsafe { word(inputs[k as usize], dtype, i as usize) });
            }
            Term::Random { rng, stream, per_item } => {
                // SAFETY: as above.
                let words: [u32; 4] =
                    std::array::from_fn(|i| unsafe { word(inputs[rng as usize], DType::U32, i) });
                random(out, words, stream, per_item, start);
            }
            Term::F32(bits) => out.fill(bits),
            Term::U32(x) => out.fill(x),
            Term::I32(x) => out.fill(x as u32),
            term => {
                let first = term.operands().next().unwrap_or(0) as usize;
                compute(term, self.types[first], done, out);
            }
        }
    }

    /// Loads input `k` at positions from `start` on.
    unsafe fn load(&self, k: usize, memory: Memory, start: usize, out: &mut [u32]) {
        match &self.layouts[k] {
            // SAFETY: positions are within the tensor, as its shape says.
            Layout::Linear => unsafe { copy(memory, self.dtypes[k], start, out) },
            // SAFETY: as above.
            Layout::Scalar => out.fill(unsafe { word(memory, self.dtypes[k], 0) }),
            Layout::Strided(strides) => {
                let rank = self.sizes.len();
                let (inner, stride) = (self.sizes[rank - 1], strides[rank - 1]);
                let mut done = 0;
                while done < out.len() {
                    // Runs along the innermost dimension.
                    let position = start + done;
                    let mut rest = position / inner;
                    let column = position % inner;
                    let mut base = column * stride;
                    for d in (0..rank - 1).rev() {
                        base += rest % self.sizes[d] * strides[d];
                        rest /= self.sizes[d];
                    }
                    let run = (inner - column).min(out.len() - done);
                    let target = &mut out[done..done + run];
                    // SAFETY: as above.
                    unsafe {
                        match stride {
                            0 => target.fill(word(memory, self.dtypes[k], base)),
                            1 => copy(memory, self.dtypes[k], base, target),
                            _ => target.iter_mut().enumerate().for_each(|(i, o)| {
                                *o = word(memory, self.dtypes[k], base + i * stride);
                            }),
                        }
                    }
                    done += run;
                }
            }
        }
    }
}

/// Element `i` as a word.
unsafe fn word(memory: Memory, dtype: DType, i: usize) -> u32 {
    match dtype {
        DType::U8 => {
            assert!(i < memory.len::<u8>());
            // SAFETY: within the memory.
            u32::from(unsafe { *memory.as_ptr::<u8>().add(i) })
        }
        _ => {
            assert!(i < memory.len::<u32>());
            // SAFETY: within the memory.
            unsafe { *memory.as_ptr::<u32>().add(i) }
        }
    }
}

/// Elements from `start` on as words.
unsafe fn copy(memory: Memory, dtype: DType, start: usize, out: &mut [u32]) {
    match dtype {
        DType::U8 => {
            assert!(start + out.len() <= memory.len::<u8>());
            // SAFETY: within the memory, which nobody writes meanwhile.
            let from =
                unsafe { std::slice::from_raw_parts(memory.as_ptr::<u8>().add(start), out.len()) };
            out.iter_mut().zip(from).for_each(|(o, x)| *o = u32::from(*x));
        }
        _ => {
            assert!(start + out.len() <= memory.len::<u32>());
            // SAFETY: within the memory; `out` is a register.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    memory.as_ptr::<u32>().add(start),
                    out.as_mut_ptr(),
                    out.len(),
                );
            }
        }
    }
}

type Words = [u32; BLOCK];

#[inline(always)]
fn f1(a: &Words, out: &mut Words, f: impl Fn(f32) -> f32) {
    for i in 0..BLOCK {
        out[i] = f(f32::from_bits(a[i])).to_bits();
    }
}

#[inline(always)]
fn f2(a: &Words, b: &Words, out: &mut Words, f: impl Fn(f32, f32) -> f32) {
    for i in 0..BLOCK {
        out[i] = f(f32::from_bits(a[i]), f32::from_bits(b[i])).to_bits();
    }
}

#[inline(always)]
fn w2(a: &Words, b: &Words, out: &mut Words, f: impl Fn(u32, u32) -> u32) {
    for i in 0..BLOCK {
        out[i] = f(a[i], b[i]);
    }
}

#[inline(always)]
fn i2(a: &Words, b: &Words, out: &mut Words, f: impl Fn(i32, i32) -> i32) {
    w2(a, b, out, |x, y| f(x as i32, y as i32) as u32);
}

/// One term over a block; `operand` is the type of its first operand (of the
/// condition, in a selection). No target contracts to fused multiply-adds, so
/// all give the same bits.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn compute(term: Term, operand: Scalar, done: &[Register], out: &mut Words) {
    let get = |id: u32| &done[id as usize].0;
    match term {
        Term::Unary(f, a) if operand == Scalar::I32 => {
            let a = get(a);
            i2(a, a, out, |x, _| match f {
                Unary::Neg => x.wrapping_neg(),
                Unary::Abs => x.wrapping_abs(),
                _ => x,
            });
        }
        Term::Unary(f, a) => {
            let a = get(a);
            match f {
                Unary::Neg => f1(a, out, |x| -x),
                Unary::Abs => f1(a, out, f32::abs),
                Unary::Exp => f1(a, out, math::exp),
                Unary::Log => f1(a, out, math::log),
                Unary::Sqrt => f1(a, out, f32::sqrt),
                Unary::Rsqrt => f1(a, out, |x| 1.0 / x.sqrt()),
                Unary::Tanh => f1(a, out, math::tanh),
                Unary::Erf => f1(a, out, math::erf),
                Unary::Sin => f1(a, out, f32::sin),
                Unary::Cos => f1(a, out, f32::cos),
                Unary::Floor => f1(a, out, f32::floor),
            }
        }
        Term::Binary(f, a, b) => {
            let (a, b) = (get(a), get(b));
            match (operand, f) {
                (Scalar::F32, Binary::Add) => f2(a, b, out, |x, y| x + y),
                (Scalar::F32, Binary::Sub) => f2(a, b, out, |x, y| x - y),
                (Scalar::F32, Binary::Mul) => f2(a, b, out, |x, y| x * y),
                (Scalar::F32, Binary::Div) => f2(a, b, out, |x, y| x / y),
                (Scalar::F32, Binary::Min) => {
                    f2(a, b, out, |x, y| if y < x || y.is_nan() { y } else { x })
                }
                (Scalar::F32, Binary::Max) => {
                    f2(a, b, out, |x, y| if y > x || y.is_nan() { y } else { x })
                }
                (Scalar::F32, Binary::Pow) => f2(a, b, out, f32::powf),
                (Scalar::I32, Binary::Add) => i2(a, b, out, i32::wrapping_add),
                (Scalar::I32, Binary::Sub) => i2(a, b, out, i32::wrapping_sub),
                (Scalar::I32, Binary::Mul) => i2(a, b, out, i32::wrapping_mul),
                (Scalar::I32, Binary::Div) => {
                    i2(a, b, out, |x, y| if y == 0 { x } else { x.wrapping_div(y) })
                }
                (Scalar::I32, Binary::Min) => i2(a, b, out, i32::min),
                (Scalar::I32, Binary::Max) => i2(a, b, out, i32::max),
                (Scalar::I32, Binary::Pow) => i2(a, b, out, |x, y| x.wrapping_pow(y.max(0) as u32)),
                (_, Binary::Add) => w2(a, b, out, u32::wrapping_add),
                (_, Binary::Sub) => w2(a, b, out, u32::wrapping_sub),
                (_, Binary::Mul) => w2(a, b, out, u32::wrapping_mul),
                (_, Binary::Div) => w2(a, b, out, |x, y| x.checked_div(y).unwrap_or(x)),
                (_, Binary::Min) => w2(a, b, out, u32::min),
                (_, Binary::Max) => w2(a, b, out, u32::max),
                (_, Binary::Pow) => w2(a, b, out, u32::wrapping_pow),
            }
        }
        Term::Compare(f, a, b) => {
            let (a, b) = (get(a), get(b));
            macro_rules! with {
                ($f:expr) => {
                    match operand {
                        Scalar::F32 => w2(a, b, out, |x, y| {
                            u32::from($f(&f32::from_bits(x), &f32::from_bits(y)))
                        }),
                        Scalar::I32 => {
                            w2(a, b, out, |x, y| u32::from($f(&(x as i32), &(y as i32))))
                        }
                        _ => w2(a, b, out, |x, y| u32::from($f(&x, &y))),
                    }
                };
            }
            match f {
                Compare::Less => with!(PartialOrd::lt),
                Compare::LessEqual => with!(PartialOrd::le),
                Compare::Equal => with!(PartialEq::eq),
                Compare::NotEqual => with!(PartialEq::ne),
            }
        }
        Term::Select(c, a, b) => {
            let (c, a, b) = (get(c), get(a), get(b));
            for i in 0..BLOCK {
                out[i] = if c[i] != 0 { a[i] } else { b[i] };
            }
        }
        Term::Cast(to, a) => {
            let a = get(a);
            match (operand, to) {
                (Scalar::F32, Scalar::U32) => w2(a, a, out, |x, _| f32::from_bits(x) as u32),
                (Scalar::F32, Scalar::I32) => w2(a, a, out, |x, _| f32::from_bits(x) as i32 as u32),
                (Scalar::F32, Scalar::Bool) => {
                    w2(a, a, out, |x, _| u32::from(f32::from_bits(x) != 0.0))
                }
                (Scalar::I32, Scalar::F32) => w2(a, a, out, |x, _| (x as i32 as f32).to_bits()),
                (_, Scalar::F32) if operand != Scalar::F32 => {
                    w2(a, a, out, |x, _| (x as f32).to_bits())
                }
                (_, Scalar::Bool) => w2(a, a, out, |x, _| u32::from(x != 0)),
                _ => out.copy_from_slice(a),
            }
        }
        Term::Input(_)
        | Term::At(..)
        | Term::F32(_)
        | Term::U32(_)
        | Term::I32(_)
        | Term::Random { .. } => {
            unreachable!("handled by the caller")
        }
    }
}

/// Philox for each position from `start` on.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl",
    "x86_64+avx2",
    "x86_64+sse4.1"
))]
fn random(out: &mut Words, words: [u32; 4], stream: u32, per_item: u32, start: usize) {
    let first = (u64::from(words[3]) * u64::from(per_item)).wrapping_add(start as u64);
    for (i, o) in out.iter_mut().enumerate() {
        let index = first.wrapping_add(i as u64);
        let counter = [index as u32, (index >> 32) as u32, stream, words[2]];
        *o = philox::philox4x32(counter, [words[0], words[1]])[0];
    }
}
