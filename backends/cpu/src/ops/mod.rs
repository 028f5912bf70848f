//! Execution of ops. A [`Task`] is a node with its memory resolved once, when
//! the plan is loaded.

mod attention;
mod avg_pool;
mod conv;
mod cross_entropy;
mod custom;
mod embedding;
mod linear_cross_entropy;
mod map;
mod matmul;
mod max_pool;
mod moments;
mod reduce;
mod rope;
mod scratch;
mod strided_copy;
mod upsample;

use plimsoll_core::ops::{Attention, LinearCrossEntropy, Op, Operand};
use plimsoll_core::plan::{PlannedNode, types};

use crate::arena::{Arena, Memory};

/// Elements that one piece of parallel work handles; by shape alone, so that
/// results do not depend on the number of threads.
pub const PIECE: usize = 16 << 10;

/// A node ready to run.
pub struct Task {
    kind: Kind,
}

enum Kind {
    Map(map::Task),
    Reduce(reduce::Task),
    Matmul(matmul::Task),
    Moments(moments::Task),
    Conv(conv::Task),
    ConvInputGradient(conv::InputGradientTask),
    ConvWeightGradient(conv::WeightGradientTask),
    Attention(attention::Task),
    AttentionGradient(attention::GradientTask),
    Rope(rope::Task),
    StridedCopy(strided_copy::Task),
    Embedding(embedding::Task),
    EmbeddingGradient(embedding::GradientTask),
    CrossEntropy(cross_entropy::Task),
    CrossEntropyGradient(cross_entropy::GradientTask),
    LinearCrossEntropy(linear_cross_entropy::Task),
    LinearCrossEntropyGradient(linear_cross_entropy::GradientTask),
    MaxPool(max_pool::Task),
    MaxPoolGradient(max_pool::GradientTask),
    AvgPool(avg_pool::Task),
    AvgPoolGradient(avg_pool::Task),
    Upsample(upsample::Task),
    UpsampleGradient(upsample::Task),
    Custom(custom::Task),
    /// A change of shape computes nothing.
    Nothing,
}

impl Task {
    /// Resolves a node's memory.
    pub fn new(node: &PlannedNode, arena: &Arena) -> Task {
        let memories = |operands: &[Operand]| -> Vec<Memory> {
            operands.iter().map(|o| arena.tensor(o)).collect()
        };
        let (inputs, outputs) = (memories(&node.inputs), memories(&node.outputs));
        let workspace = node.workspace.map(|w| arena.storage(w));
        let shapes: Vec<&[usize]> = node.inputs.iter().map(|o| o.tensor.shape.as_slice()).collect();
        let out_bytes = node.outputs[0].tensor.numel() * 4;
        let copy = |copies, zero| {
            Kind::StridedCopy(strided_copy::Task {
                copies,
                zero,
                inputs: inputs.clone(),
                outputs: outputs.clone(),
            })
        };
        let linear = |op: &LinearCrossEntropy, bias| linear_cross_entropy::Linear {
            loss: op.loss.clone(),
            extents: op.extents(&types(&node.inputs)),
            hidden: inputs[0],
            weight: inputs[1],
            labels: inputs[2],
            bias,
            workspace: workspace.expect("chunks need workspace"),
        };
        let heads = |op: &Attention, mask| attention::Heads {
            op: op.clone(),
            extents: Attention::extents(&types(&node.inputs)),
            q: inputs[0],
            k: inputs[1],
            v: inputs[2],
            mask,
            scratch: workspace.expect("tiles need workspace"),
        };
        let kind = match &node.op {
            Op::Map(op) => Kind::Map(map::Task::new(op, &shapes, inputs, outputs)),
            Op::Reduce(op) => {
                Kind::Reduce(reduce::Task::new(op, &shapes, inputs, outputs[0], workspace))
            }
            Op::Matmul(op) => Kind::Matmul(matmul::Task::new(op, node, inputs, outputs[0])),
            Op::Custom(op) => Kind::Custom(custom::Task {
                op: op.clone(),
                inputs: inputs.into_iter().zip(types(&node.inputs)).collect(),
                outputs: outputs.into_iter().zip(types(&node.outputs)).collect(),
            }),
            Op::Moments(op) => Kind::Moments(moments::Task {
                op: op.clone(),
                input: inputs[0],
                outputs,
                workspace,
            }),
            Op::Conv(op) => Kind::Conv(conv::Task::new(op, node, &inputs, outputs[0], workspace)),
            Op::ConvInputGradient(op) => Kind::ConvInputGradient(conv::InputGradientTask {
                geometry: op.geometry(&types(&node.inputs)),
                weight: inputs[0],
                gradient: inputs[1],
                output: outputs[0],
                workspace,
            }),
            Op::ConvWeightGradient(op) => Kind::ConvWeightGradient(conv::WeightGradientTask {
                geometry: op.geometry(&types(&node.inputs)),
                x: inputs[0],
                gradient: inputs[1],
                output: outputs[0],
                workspace,
            }),
            Op::Attention(op) => Kind::Attention(attention::Task {
                heads: heads(op, inputs.get(3).copied()),
                outputs: [outputs[0], outputs[1]],
            }),
            Op::AttentionGradient(op) => Kind::AttentionGradient(attention::GradientTask {
                heads: heads(&op.forward, inputs.get(6).copied()),
                output: inputs[3],
                logsumexp: inputs[4],
                gradient: inputs[5],
                gradients: [outputs[0], outputs[1], outputs[2]],
            }),
            Op::Rope(op) => Kind::Rope(rope::Task {
                sizes: [shapes[0][1], shapes[0][2], shapes[0][3]],
                frequencies: op.frequencies(shapes[0][3]),
                input: inputs[0],
                output: outputs[0],
            }),
            Op::Reshape(_) => Kind::Nothing,
            Op::Permute(op) => copy(vec![op.copy(shapes[0])], 0),
            Op::Slice(op) => copy(vec![op.copy(shapes[0])], 0),
            Op::Pad(op) => copy(vec![op.copy(shapes[0])], out_bytes),
            Op::Concat(op) => copy(op.copies(&shapes), 0),
            Op::Split(op) => copy(op.copies(shapes[0]), 0),
            Op::Embedding(_) => {
                let [rows, width] = [shapes[0][0], shapes[0][1]];
                Kind::Embedding(embedding::Task {
                    rows,
                    width,
                    table: inputs[0],
                    indices: inputs[1],
                    output: outputs[0],
                })
            }
            Op::EmbeddingGradient(op) => Kind::EmbeddingGradient(embedding::GradientTask {
                rows: op.rows,
                width: node.outputs[0].tensor.shape[1],
                indices: inputs[0],
                gradient: inputs[1],
                output: outputs[0],
            }),
            Op::CrossEntropy(op) => Kind::CrossEntropy(cross_entropy::Task {
                op: op.clone(),
                classes: shapes[0][1],
                inputs,
                outputs,
            }),
            Op::CrossEntropyGradient(op) => {
                Kind::CrossEntropyGradient(cross_entropy::GradientTask {
                    op: op.forward.clone(),
                    classes: shapes[0][1],
                    inputs,
                    output: outputs[0],
                })
            }
            Op::LinearCrossEntropy(op) => Kind::LinearCrossEntropy(linear_cross_entropy::Task {
                linear: linear(op, inputs.get(3).copied()),
                outputs,
            }),
            Op::LinearCrossEntropyGradient(op) => {
                Kind::LinearCrossEntropyGradient(linear_cross_entropy::GradientTask {
                    linear: linear(&op.forward, inputs.get(5).copied()),
                    logsumexp: inputs[3],
                    gradient: inputs[4],
                    outputs: op.places().map(|j| j.map(|j| outputs[j])),
                })
            }
            Op::MaxPool(op) => Kind::MaxPool(max_pool::Task {
                windows: op.pool.windows("max_pool", shapes[0]).expect("was inferred"),
                input: inputs[0],
                largest: outputs[0],
                indices: outputs[1],
            }),
            Op::MaxPoolGradient(op) => Kind::MaxPoolGradient(max_pool::GradientTask {
                windows: op.pool.windows("max_pool", &op.input).expect("was inferred"),
                indices: inputs[0],
                gradient: inputs[1],
                output: outputs[0],
            }),
            Op::AvgPool(op) => Kind::AvgPool(avg_pool::Task {
                windows: op.pool.windows("avg_pool", shapes[0]).expect("was inferred"),
                count_include_pad: op.count_include_pad,
                input: inputs[0],
                output: outputs[0],
            }),
            Op::AvgPoolGradient(op) => Kind::AvgPoolGradient(avg_pool::Task {
                windows: op.forward.pool.windows("avg_pool", &op.input).expect("was inferred"),
                count_include_pad: op.forward.count_include_pad,
                input: inputs[0],
                output: outputs[0],
            }),
            Op::Upsample(op) => {
                let planes = op.planes("upsample", shapes[0]).expect("was inferred");
                Kind::Upsample(upsample::Task::new(planes, op.mode, inputs[0], outputs[0]))
            }
            Op::UpsampleGradient(op) => {
                let op = &op.forward;
                let input = &node.outputs[0].tensor.shape;
                let planes = op.planes("upsample", input).expect("was inferred");
                Kind::UpsampleGradient(upsample::Task::new(planes, op.mode, inputs[0], outputs[0]))
            }
        };
        Task { kind }
    }

    /// Computes the node. The caller is within the pool.
    pub fn run(&self, pool: &rayon::ThreadPool) {
        match &self.kind {
            Kind::Map(t) => t.run(),
            Kind::Custom(t) => t.run(),
            Kind::Reduce(t) => t.run(),
            Kind::Matmul(t) => t.run(pool.current_num_threads()),
            Kind::Moments(t) => t.run(),
            Kind::Conv(t) => t.run(pool.current_num_threads()),
            Kind::ConvInputGradient(t) => t.run(pool.current_num_threads()),
            Kind::ConvWeightGradient(t) => t.run(pool.current_num_threads()),
            Kind::Attention(t) => t.run(pool.current_num_threads()),
            Kind::AttentionGradient(t) => t.run(pool.current_num_threads()),
            Kind::Rope(t) => t.run(),
            Kind::StridedCopy(t) => t.run(),
            Kind::Embedding(t) => t.run(),
            Kind::EmbeddingGradient(t) => t.run(),
            Kind::CrossEntropy(t) => t.run(),
            Kind::CrossEntropyGradient(t) => t.run(),
            Kind::LinearCrossEntropy(t) => t.run(pool.current_num_threads()),
            Kind::LinearCrossEntropyGradient(t) => t.run(pool.current_num_threads()),
            Kind::MaxPool(t) => t.run(),
            Kind::MaxPoolGradient(t) => t.run(),
            Kind::AvgPool(t) => t.run(),
            Kind::AvgPoolGradient(t) => t.run_gradient(),
            Kind::Upsample(t) => t.run(),
            Kind::UpsampleGradient(t) => t.run_gradient(),
            Kind::Nothing => {}
        }
    }
}

/// Runs `f(start, len)` for pieces of `0..total`, in parallel.
pub fn in_pieces(total: usize, piece: usize, f: impl Fn(usize, usize) + Sync + Send) {
    use rayon::prelude::*;
    if total <= piece {
        return f(0, total);
    }
    (0..total.div_ceil(piece)).into_par_iter().for_each(|p| {
        let start = p * piece;
        f(start, piece.min(total - start));
    });
}
