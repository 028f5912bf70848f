//! Fusion: chains of maps become one map, a map after a product becomes its
//! epilogue, a map before a reduction becomes its prologue. Intermediate
//! tensors then never exist.
//!
//! Fusion depends on the graph alone, never on the plan, so that plans do not
//! change bits.

use std::collections::BTreeMap;

use super::{PartProgram, ProgramNode, Use, reads_in_place, writers};
use crate::dtype::DType;
use crate::expression::Expression;
use crate::graph::Phase;
use crate::launch::{Capabilities, PARAMETER_WORDS};
use crate::ops::{Conv, Map, Matmul, Op, Reduce, TensorType, map};
use crate::shape;

/// Fuses wherever a value has one reader that can take over its computation.
pub fn fuse(part: &mut PartProgram) {
    let mut fusion = Fusion::of(part);
    // Nodes are in topological order, so producers have been fused before.
    for n in 0..part.nodes.len() {
        while let Some((producer, fused)) = fusion.find(part, n) {
            fusion.count(&part.nodes[n], -1);
            fusion.count(&part.nodes[producer], -1);
            fusion.count(&fused, 1);
            fusion.gone[producer] = true;
            part.nodes[n] = fused;
        }
    }
    let mut gone = fusion.gone.into_iter();
    part.nodes.retain(|_| !gone.next().unwrap_or(false));
}

/// What fusion looks up. Nodes keep their places until all are fused.
struct Fusion {
    /// For each value, how often it is read.
    readers: Vec<i64>,
    /// For each value, the node that makes it.
    producer: Vec<Option<usize>>,
    /// For each node, whether another has taken it over.
    gone: Vec<bool>,
    /// For each leaf that is stored into, the node that does it.
    writers: BTreeMap<usize, usize>,
}

impl Fusion {
    fn of(part: &PartProgram) -> Fusion {
        let mut fusion = Fusion {
            readers: vec![0; part.values.len()],
            producer: vec![None; part.values.len()],
            gone: vec![false; part.nodes.len()],
            writers: writers(part),
        };
        for (n, node) in part.nodes.iter().enumerate() {
            fusion.count(node, 1);
            node.outputs.iter().for_each(|o| fusion.producer[o.value] = Some(n));
        }
        fusion
    }

    fn count(&mut self, node: &ProgramNode, by: i64) {
        node.inputs.iter().for_each(|u| self.readers[u.value] += by);
    }

    /// A producer that fuses into node `n`, and the result.
    fn find(&self, part: &PartProgram, n: usize) -> Option<(usize, ProgramNode)> {
        let consumer = &part.nodes[n];
        consumer.inputs.iter().enumerate().find_map(|(k, u)| {
            let value = &part.values[u.value];
            if value.leaf.is_some() || value.assigned.is_some() || self.readers[u.value] != 1 {
                return None;
            }
            let place = self.producer[u.value]?;
            let producer = &part.nodes[place];
            if !same_pass(producer.phase, consumer.phase) {
                return None;
            }
            let fused = join(producer, consumer, k)?;
            let fits = fused.inputs.len() + fused.outputs.len()
                <= Capabilities::PORTABLE.max_bindings
                && fits_parameters(&fused)
                && self.keeps_assignments(part, producer, &fused, n);
            fits.then_some((place, fused))
        })
    }

    /// The producer may read no leaf that an earlier node stores into (it
    /// reads it later now), and the fused node must still be able to write in
    /// place.
    fn keeps_assignments(
        &self,
        part: &PartProgram,
        producer: &ProgramNode,
        fused: &ProgramNode,
        consumer: usize,
    ) -> bool {
        let unmoved = producer
            .inputs
            .iter()
            .all(|u| self.writers.get(&u.value).is_none_or(|writer| *writer >= consumer));
        unmoved
            && fused.outputs.iter().all(|o| match part.values[o.value].assigned {
                Some(leaf) => reads_in_place(fused, leaf, o.value),
                None => true,
            })
    }
}

/// Whether sizes and strides surely fit a parameter block, beside the words that
/// a kernel takes for itself.
fn fits_parameters(node: &ProgramNode) -> bool {
    let rank = match &node.op {
        Op::Map(op) => op.shape.len(),
        Op::Reduce(op) => op.shape.len(),
        _ => node.outputs[0].tensor.shape.len(),
    };
    let own = if matches!(node.op, Op::Conv(_)) { 25 } else { 10 };
    own + (1 + node.inputs.len()) * rank <= PARAMETER_WORDS
}

/// Moving a forward op into the backward pass would keep its inputs alive.
fn same_pass(producer: Phase, consumer: Phase) -> bool {
    producer == consumer || (producer, consumer) == (Phase::Backward, Phase::Update)
}

fn join(producer: &ProgramNode, consumer: &ProgramNode, k: usize) -> Option<ProgramNode> {
    match (&producer.op, &consumer.op) {
        (Op::Map(inner), Op::Map(outer)) if producer.outputs.len() == 1 => {
            if !outer.expression.reads_elementwise(k) || reads_whole(&outer.expression, k) {
                return None;
            }
            let inputs =
                retarget_all(&producer.inputs, &inner.expression, &inner.shape, &outer.shape)?;
            let (expression, inputs) =
                inline(&outer.expression, &consumer.inputs, k, &inner.expression, inputs, 0);
            let op = Op::Map(Map { expression, shape: outer.shape.clone() });
            Some(ProgramNode { op, inputs, ..consumer.clone() })
        }
        (Op::Map(inner), Op::Reduce(outer)) if producer.outputs.len() == 1 => {
            if !outer.prologue.reads_elementwise(k) || reads_whole(&outer.prologue, k) {
                return None;
            }
            let inputs =
                retarget_all(&producer.inputs, &inner.expression, &inner.shape, &outer.shape)?;
            let (prologue, inputs) =
                inline(&outer.prologue, &consumer.inputs, k, &inner.expression, inputs, 0);
            let op = Op::Reduce(Reduce { prologue, ..outer.clone() });
            Some(ProgramNode { op, inputs, ..consumer.clone() })
        }
        (Op::Matmul(inner), Op::Map(outer)) => {
            let (epilogue, inputs) = epilogue(producer, &inner.epilogue, consumer, outer, k)?;
            let op = Op::Matmul(Matmul { epilogue, ..inner.clone() });
            Some(with_epilogue(producer, consumer, op, inputs))
        }
        (Op::Conv(inner), Op::Map(outer)) => {
            let (epilogue, inputs) = epilogue(producer, &inner.epilogue, consumer, outer, k)?;
            let op = Op::Conv(Conv { epilogue, ..inner.clone() });
            Some(with_epilogue(producer, consumer, op, inputs))
        }
        _ => None,
    }
}

/// A producer with an epilogue that takes over the consumer's computation.
fn with_epilogue(
    producer: &ProgramNode,
    consumer: &ProgramNode,
    op: Op,
    inputs: Vec<Use>,
) -> ProgramNode {
    let tensor = producer.outputs[0].tensor.clone();
    let outputs = vec![Use { value: consumer.outputs[0].value, tensor }];
    let (label, phase) = (producer.label.clone(), consumer.phase);
    ProgramNode { op, inputs, outputs, label, phase, again: false }
}

/// A map after a product with the epilogue `inner`: the map's other operands
/// become the epilogue's. Gives the new epilogue and the product's inputs.
fn epilogue(
    producer: &ProgramNode,
    inner: &Expression,
    consumer: &ProgramNode,
    outer: &Map,
    k: usize,
) -> Option<(Expression, Vec<Use>)> {
    let types = outer.expression.types();
    let float =
        types[*outer.expression.outputs.first()? as usize] == crate::expression::Scalar::F32;
    if outer.expression.outputs.len() != 1
        || !float
        || !outer.expression.reads_elementwise(k)
        || reads_whole(&outer.expression, k)
    {
        return None;
    }
    let product = &producer.outputs[0].tensor;
    if product.numel() != shape::numel(&outer.shape) {
        return None;
    }
    let others: Vec<Use> = consumer
        .inputs
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != k)
        .map(|(_, u)| u.clone())
        .collect();
    let mut reordered = outer.expression.clone();
    // Input k of the map is the product: substitute the old epilogue there.
    let mut dtypes: Vec<DType> = reordered.inputs.clone();
    dtypes.remove(k);
    let kept: Vec<usize> = (0..reordered.inputs.len()).filter(|i| *i != k).collect();
    let retargeted: Vec<Use> = others
        .iter()
        .zip(&kept)
        .map(|(u, i)| retarget(u, reordered.reads_elementwise(*i), &outer.shape, &product.shape))
        .collect::<Option<_>>()?;
    reordered = reordered.substitute(k, inner, 0);
    // Now: inputs are `others`, then the old epilogue's, whose first is the product.
    let mut operands: Vec<Option<Use>> = retargeted.into_iter().map(Some).collect();
    operands.push(None);
    operands.extend(producer.inputs[2..].iter().cloned().map(Some));
    let (pruned, mut operands) = map::prune(&reordered, &operands);
    let place = operands.iter().position(Option::is_none)?;
    // The product goes first.
    let order: Vec<usize> = (0..operands.len())
        .map(|i| match i.cmp(&place) {
            std::cmp::Ordering::Less => i + 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => i,
        })
        .collect();
    operands.remove(place);
    let mut inputs_dtypes = vec![DType::F32; order.len()];
    for (old, new) in order.iter().enumerate() {
        inputs_dtypes[*new] = pruned.inputs[old];
    }
    let epilogue = pruned.merge_inputs(&order, inputs_dtypes);
    let mut inputs = producer.inputs[..2].to_vec();
    inputs.extend(operands.into_iter().flatten());
    Some((epilogue, inputs))
}

/// Substitutes `inner` for input `k` and prunes; gives the operands.
fn inline(
    outer: &Expression,
    outer_inputs: &[Use],
    k: usize,
    inner: &Expression,
    inner_inputs: Vec<Use>,
    output: usize,
) -> (Expression, Vec<Use>) {
    let joined = outer.substitute(k, inner, output);
    let mut operands: Vec<Use> =
        outer_inputs.iter().enumerate().filter(|(i, _)| *i != k).map(|(_, u)| u.clone()).collect();
    operands.extend(inner_inputs);
    map::prune(&joined, &operands)
}

fn reads_whole(e: &Expression, k: usize) -> bool {
    use crate::expression::Term;
    e.terms
        .iter()
        .any(|t| matches!(*t, Term::At(i, _) | Term::Random { rng: i, .. } if i as usize == k))
}

fn retarget_all(inputs: &[Use], e: &Expression, from: &[usize], to: &[usize]) -> Option<Vec<Use>> {
    // One position must stay one position: a draw or a constant of a small
    // map is not to be made anew at each place that it is broadcast to.
    if shape::numel(from) != shape::numel(to) {
        return None;
    }
    inputs.iter().enumerate().map(|(k, u)| retarget(u, e.reads_elementwise(k), from, to)).collect()
}

/// An operand read over `from`, as read over `to` (as many elements): views it
/// under a shape that broadcasts alike, if there is one.
fn retarget(u: &Use, elementwise: bool, from: &[usize], to: &[usize]) -> Option<Use> {
    if !elementwise || from == to {
        return Some(u.clone());
    }
    let numel = u.tensor.numel();
    if shape::numel(from) != shape::numel(to) {
        return None;
    }
    let shape = if numel == shape::numel(to) {
        to.to_vec()
    } else if numel == 1 {
        vec![1]
    } else {
        // A vector along the last dimension of both.
        let last = *u.tensor.shape.last()?;
        let vector = numel == last && from.last() == Some(&last) && to.last() == Some(&last);
        if !vector {
            return None;
        }
        vec![last]
    };
    Some(Use { value: u.value, tensor: TensorType::new(shape, u.tensor.dtype) })
}
