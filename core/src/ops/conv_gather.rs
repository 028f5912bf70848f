//! The launch that `conv` and `conv_input_gradient` share: both gather, for
//! each element of their output, the elements of their input that it meets.

use super::convolution::Geometry;
use super::convolution_tiles::Tile;
use super::{LowerContext, Operand, map};
use crate::dtype::DType;
use crate::expression::Expression;
use crate::launch::{Launch, StorageId};
use crate::shape;

/// Invocations of a workgroup where each computes one element.
const WORKGROUP: u32 = 64;

/// Which of the two ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gather {
    /// Outputs meet inputs.
    Forward,
    /// Inputs meet outputs. With a stride s along a dimension, element i of the
    /// input only meets every s-th tap, the same ones as element i + s: the
    /// elements fall into classes, and over each the gradient is a convolution
    /// of stride 1.
    InputGradient,
}

/// Binds `weight`, `from` and `out`. Parameters: those of the geometry (22),
/// then for each dimension after how many taps a class meets one again (3).
pub(super) fn gather(
    cx: &LowerContext<'_>,
    g: &Geometry,
    kind: Gather,
    [weight, from]: [StorageId; 2],
    (epilogue, operands): (&Expression, &[Operand]),
) -> Launch {
    let out = &cx.outputs[0];
    let mut bound = map::Bindings::default();
    bound.bind_named("weight", weight, DType::F32);
    bound.bind_named("from", from, DType::F32);
    bound.bind_named("out", out.storage, DType::F32);
    let mut parameters = g.parameters();
    let period = |d: usize| g.stride[d] / greatest_common_divisor(g.stride[d], g.dilation[d]);
    parameters.extend([0, 1, 2].map(|d| period(d) as u32));
    let to = &out.tensor.shape;
    let body = map::body_with_argument(
        "epilogue",
        epilogue,
        Some(0),
        operands,
        &[],
        to,
        &mut bound,
        &mut parameters,
    );
    let gradient = kind == Gather::InputGradient;
    let mut constants = vec![("GRADIENT".into(), u32::from(gradient))];
    let rows = if gradient { g.in_channels } else { g.out_channels };
    if rows < Tile::LEAST_ROWS {
        constants.push(("WORKGROUP".into(), WORKGROUP));
        let groups = (out.tensor.numel() as u64).div_ceil(u64::from(WORKGROUP));
        let groups = cx.capabilities.fold_groups(groups);
        return bound.launch("conv_direct", constants, vec![body], groups, parameters);
    }
    let tile = Tile::of(rows);
    constants.extend(tile.constants());
    let (classes, positions) = if gradient {
        let classes = [0, 1, 2].map(|d| g.stride[d].min(g.input[d]));
        let positions = [0, 1, 2].map(|d| g.input[d].div_ceil(g.stride[d]));
        (shape::numel(&classes), shape::numel(&positions))
    } else {
        (1, g.output_numel())
    };
    let across = (g.batch * positions).div_ceil(tile.columns);
    let tiles = across * rows.div_ceil(tile.rows) * g.groups * classes;
    let groups = cx.capabilities.fold_groups(tiles as u64);
    bound.launch("conv", constants, vec![body], groups, parameters)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
