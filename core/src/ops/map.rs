//! `map`: an elementwise expression over broadcast inputs, with any number of
//! outputs of one shape. Activations, bias, residual, dropout, casts, most
//! gradients and all optimizer updates are maps.

use serde::{Deserialize, Serialize};

use super::{
    Cost, Emit, LowerContext, Op, Operand, Operation, Reshape, Tensor64, TensorType, ValueId,
    reduce,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::{Expression, Scalar, Term, derivative, evaluate};
use crate::launch::{Access, Binding, Body, Kernel, Launch, StorageId};
use crate::shape;

/// Invocations of a map workgroup.
pub const WORKGROUP: u32 = 64;

/// An elementwise op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// What is computed at each position.
    pub expression: Expression,
    /// Shape of the outputs; inputs read by position broadcast to it.
    pub shape: Vec<usize>,
}

impl Map {
    /// A map over the broadcast shape of `inputs`.
    pub fn over(expression: Expression, inputs: &[TensorType]) -> Result<Map> {
        let mut out: Vec<usize> = Vec::new();
        for (k, t) in inputs.iter().enumerate() {
            if expression.reads_elementwise(k) {
                out = shape::broadcast(&out, &t.shape).ok_or_else(|| {
                    let all: Vec<_> = inputs.iter().map(|t| shape::display(&t.shape)).collect();
                    Error::shape("map", format!("shapes {} do not broadcast", all.join(", ")))
                })?;
            }
        }
        Ok(Map { expression, shape: out })
    }
}

/// Storage type of a stored term.
fn stored(scalar: Scalar) -> Option<DType> {
    match scalar {
        Scalar::F32 => Some(DType::F32),
        Scalar::U32 => Some(DType::U32),
        Scalar::I32 => Some(DType::I32),
        Scalar::Bool => None,
    }
}

/// Checks that an expression's inputs match `inputs`, those read by position
/// broadcasting to `to`.
pub(crate) fn check_inputs(
    op: &str,
    e: &Expression,
    inputs: &[TensorType],
    to: &[usize],
) -> Result<()> {
    super::expect_inputs(op, inputs, e.inputs.len())?;
    if let Some(term) = e.ill_typed() {
        let message = format!("{term:?} has operands of types that it cannot take; cast them");
        return Err(Error::shape(op, message));
    }
    for (k, t) in inputs.iter().enumerate() {
        if t.dtype != e.inputs[k] {
            let message = format!("input {k} is {}, the expression reads {}", t.dtype, e.inputs[k]);
            return Err(Error::shape(op, message));
        }
        if matches!(t.dtype, DType::F16 | DType::BF16) {
            return Err(Error::Type {
                op: op.to_string(),
                given: t.dtype,
                expected: "f32, i32, u32 or u8",
            });
        }
        if e.reads_elementwise(k) && shape::broadcast(&t.shape, to).as_deref() != Some(to) {
            return Err(Error::shape(
                op,
                format!("input {k} of shape {:?} does not broadcast to {to:?}", t.shape),
            ));
        }
    }
    for term in &e.terms {
        let (k, index) = match *term {
            Term::At(k, i) => (k, i),
            Term::Random { rng, .. } => (rng, 3),
            _ => continue,
        };
        if index as usize >= inputs[k as usize].numel() {
            return Err(Error::shape(
                op,
                format!("element {index} of input {k} of shape {:?}", inputs[k as usize].shape),
            ));
        }
    }
    Ok(())
}

impl Operation for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        check_inputs("map", &self.expression, inputs, &self.shape)?;
        let types = self.expression.types();
        self.expression
            .outputs
            .iter()
            .map(|o| {
                let dtype = stored(types[*o as usize]).ok_or_else(|| {
                    Error::shape("map", "a truth value cannot be stored; select or cast it")
                })?;
                Ok(TensorType::new(self.shape.clone(), dtype))
            })
            .collect()
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let present: Vec<bool> = gradients.iter().map(Option::is_some).collect();
        // A missing gradient is never read; any value may stand for it.
        let mut operands = inputs.to_vec();
        operands.extend(outputs);
        operands.extend(gradients.iter().enumerate().map(|(j, g)| g.unwrap_or(outputs[j])));
        let mut made: Vec<(Map, Vec<ValueId>, ValueId)> = Vec::new();
        let mut result = Vec::new();
        for k in 0..inputs.len() {
            let whole = |t: &Term| matches!(*t, Term::At(i, _) if i as usize == k);
            if wanted[k] && self.expression.terms.iter().any(whole) {
                let message = format!("input {k} is read by element and has no gradient; slice it");
                return Err(Error::shape("map", message));
            }
            let vjp = if wanted[k] { derivative::vjp(&self.expression, k, &present) } else { None };
            let Some(e) = vjp else {
                result.push(None);
                continue;
            };
            let (e, used) = prune(&e, &operands);
            let map = Map { expression: e, shape: self.shape.clone() };
            // x + y gives both the same gradient: compute it once.
            let identity =
                map.expression.is_identity() && cx.tensor_type(used[0]).shape == self.shape;
            let full = if identity {
                used[0]
            } else if let Some((_, _, v)) = made.iter().find(|(m, u, _)| *m == map && *u == used) {
                *v
            } else {
                let v = cx.emit(Op::Map(map.clone()), &used)?[0];
                made.push((map, used, v));
                v
            };
            let to = cx.tensor_type(inputs[k]).shape;
            result.push(Some(sum_to(cx, full, &to)?));
        }
        Ok(result)
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let numel = shape::numel(&self.shape) as u64;
        Cost {
            flops: numel * self.expression.flops(),
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn may_alias(&self, inputs: &[TensorType], k: usize, _j: usize) -> bool {
        // Each position is read before it is written, by the same invocation.
        let whole = self.expression.terms.iter().any(|t| match *t {
            Term::At(i, _) | Term::Random { rng: i, .. } => i as usize == k,
            _ => false,
        });
        !whole && shape::numel(&inputs[k].shape) == shape::numel(&self.shape)
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let mut bound = Bindings::default();
        let mut parameters = vec![shape::numel(&self.shape) as u32];
        let body = body(
            "evaluate",
            &self.expression,
            cx.inputs,
            cx.outputs,
            &self.shape,
            &mut bound,
            &mut parameters,
        );
        let invocations = shape::numel(&self.shape) as u64;
        vec![bound.launch(
            "map",
            vec![("WORKGROUP".into(), WORKGROUP)],
            vec![body],
            cx.capabilities.fold_groups(invocations.div_ceil(u64::from(WORKGROUP))),
            parameters,
        )]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let n = shape::numel(&self.shape);
        let types = self.expression.types();
        let mut out: Vec<Vec<f64>> = vec![Vec::with_capacity(n); self.expression.outputs.len()];
        for i in 0..n {
            for (o, v) in out.iter_mut().zip(evaluate_at(&self.expression, inputs, &self.shape, i))
            {
                o.push(v.float());
            }
        }
        out.into_iter()
            .zip(&self.expression.outputs)
            .map(|(v, o)| {
                let dtype = stored(types[*o as usize]).expect("infer has checked it");
                Tensor64::new(&TensorType::new(self.shape.clone(), dtype), v)
            })
            .collect()
    }
}

/// The reference value of all outputs of `e` at linear position `i` of `to`.
pub(crate) fn evaluate_at(
    e: &Expression,
    inputs: &[Tensor64],
    to: &[usize],
    i: usize,
) -> Vec<evaluate::Value> {
    let value = |k: usize, index: usize| {
        let x = inputs[k].values[index];
        match Scalar::from(inputs[k].dtype) {
            Scalar::U32 => evaluate::Value::U(x as u32),
            Scalar::I32 => evaluate::Value::I(x as i32),
            _ => evaluate::Value::F(x),
        }
    };
    let element = |k: usize| {
        let strides = shape::broadcast_strides(&inputs[k].shape, to);
        let mut rest = i;
        let mut index = 0;
        for d in (0..to.len()).rev() {
            index += rest % to[d] * strides[d];
            rest /= to[d];
        }
        value(k, index)
    };
    evaluate::evaluate(e, i, element, value)
}

/// Drops inputs that the expression does not read, and merges equal ones.
pub fn prune<T: Clone + PartialEq>(e: &Expression, operands: &[T]) -> (Expression, Vec<T>) {
    let mut used = vec![false; operands.len()];
    for t in &e.terms {
        match *t {
            Term::Input(k) | Term::At(k, _) | Term::Random { rng: k, .. } => {
                used[k as usize] = true
            }
            _ => {}
        }
    }
    let (mut kept, mut dtypes, mut map): (Vec<T>, Vec<DType>, Vec<usize>) = Default::default();
    for (k, operand) in operands.iter().enumerate() {
        if !used[k] {
            map.push(0);
            continue;
        }
        let place = kept.iter().position(|o| o == operand).unwrap_or_else(|| {
            kept.push(operand.clone());
            dtypes.push(e.inputs[k]);
            kept.len() - 1
        });
        map.push(place);
    }
    (e.merge_inputs(&map, dtypes), kept)
}

/// Sums a value over the axes along which `shape` was broadcast.
fn sum_to(cx: &mut dyn Emit, value: ValueId, to: &[usize]) -> Result<ValueId> {
    let from = cx.tensor_type(value).shape;
    if from == to {
        return Ok(value);
    }
    let axes = shape::broadcast_axes(to, &from);
    let sum = reduce::emit(cx, reduce::ReduceKind::Sum, value, &axes)?;
    if cx.tensor_type(sum).shape == to {
        return Ok(sum);
    }
    Ok(cx.emit(Op::Reshape(Reshape { shape: to.to_vec() }), &[sum])?[0])
}

/// Collects the bindings of a launch: one for each storage, so that no two
/// bindings of a launch overlap.
#[derive(Default)]
pub(crate) struct Bindings {
    storages: Vec<StorageId>,
    bindings: Vec<Binding>,
}

impl Bindings {
    /// The binding of an operand, added if its storage is not bound yet.
    pub fn bind(&mut self, operand: &Operand) -> usize {
        let dtype = operand.tensor.dtype;
        let mut bound = self.storages.iter().zip(&self.bindings);
        match bound.position(|(s, b)| *s == operand.storage && b.dtype == dtype) {
            Some(place) => place,
            None => self.bind_named(&format!("x{}", self.storages.len()), operand.storage, dtype),
        }
    }

    /// Binds under a name that the kernel's source uses.
    pub fn bind_named(&mut self, name: &str, storage: StorageId, dtype: DType) -> usize {
        self.storages.push(storage);
        self.bindings.push(Binding { name: name.to_string(), dtype });
        self.storages.len() - 1
    }

    /// Closes the launch.
    pub fn launch(
        self,
        name: &str,
        constants: Vec<(String, u32)>,
        bodies: Vec<Body>,
        groups: [u32; 3],
        parameters: Vec<u32>,
    ) -> Launch {
        Launch {
            kernel: Kernel {
                name: name.to_string(),
                source: None,
                constants,
                bindings: self.bindings,
                bodies,
            },
            groups,
            parameters,
            bindings: self.storages,
        }
    }
}

/// Lays out a body over `to`: binds its tensors, and appends the sizes and
/// strides that its strided inputs need to `parameters`.
pub(crate) fn body(
    name: &str,
    e: &Expression,
    inputs: &[Operand],
    outputs: &[Operand],
    to: &[usize],
    bound: &mut Bindings,
    parameters: &mut Vec<u32>,
) -> Body {
    body_with_argument(name, e, None, inputs, outputs, to, bound, parameters)
}

/// [`body`], whose input `argument` is passed in by the kernel; `inputs` are
/// the operands of the others, in order.
#[allow(clippy::too_many_arguments)]
pub(crate) fn body_with_argument(
    name: &str,
    e: &Expression,
    argument: Option<usize>,
    inputs: &[Operand],
    outputs: &[Operand],
    to: &[usize],
    bound: &mut Bindings,
    parameters: &mut Vec<u32>,
) -> Body {
    let mut operands = inputs.iter();
    let read: Vec<Option<&Operand>> = (0..e.inputs.len())
        .map(|k| if argument == Some(k) { None } else { operands.next() })
        .collect();
    let numel = shape::numel(to);
    let positional = |k: usize| e.reads_elementwise(k);
    let strided: Vec<usize> = (0..read.len())
        .filter(|&k| {
            read[k].is_some_and(|o| {
                positional(k) && o.tensor.numel() != numel && o.tensor.numel() != 1
            })
        })
        .collect();
    let rows: Vec<Vec<usize>> = strided
        .iter()
        .map(|&k| shape::broadcast_strides(&read[k].expect("has an operand").tensor.shape, to))
        .collect();
    let (sizes, rows) = shape::collapse(to, &rows);
    let parameters_at = parameters.len();
    let mut rank = 0;
    if !strided.is_empty() {
        rank = sizes.len();
        parameters.extend(sizes.iter().map(|s| *s as u32));
        parameters.extend(rows.iter().flatten().map(|s| *s as u32));
    }
    let access = (0..read.len())
        .map(|k| match read[k] {
            None => Access::Argument,
            Some(_) if !positional(k) => Access::Whole,
            Some(o) if o.tensor.numel() == numel => Access::Linear,
            Some(o) if o.tensor.numel() == 1 => Access::Scalar,
            Some(_) => {
                let row = strided.iter().position(|s| *s == k).expect("strided");
                Access::Strided(rows[row].iter().map(|s| *s != 0).collect())
            }
        })
        .collect();
    Body {
        name: name.to_string(),
        expression: e.clone(),
        inputs: read.iter().map(|o| o.map_or(0, |o| bound.bind(o))).collect(),
        access,
        outputs: outputs.iter().map(|o| bound.bind(o)).collect(),
        rank,
        parameters_at,
    }
}
