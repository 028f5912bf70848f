//! `conv_weight_gradient`: the gradient of a convolution's weight.
//!
//! A product over all windows of all items. On a GPU these are cut into slices
//! where the weight alone would not keep the device busy; the slices' sums are
//! added up in order.

use serde::{Deserialize, Serialize};

use super::convolution::{Convolution, Geometry};
use super::convolution_tiles::Tile;
use super::pool::expect_shape;
use super::{Cost, LowerContext, Operation, Tensor64, TensorType, map, reduce};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::{Capabilities, Launch};

/// Invocations of a workgroup that adds up one element together.
const WORKGROUP: u32 = 64;

/// Inputs: x [N, C, …] f32, gradient of the output [N, O, …]. Output: the
/// gradient of the weight [O, C / groups, …].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvWeightGradient {
    /// The convolution.
    pub convolution: Convolution,
    /// Taps of the kernel along each dimension.
    pub kernel: Vec<usize>,
}

impl ConvWeightGradient {
    fn weight_shape(&self, inputs: &[TensorType]) -> Result<Vec<usize>> {
        let op = "conv_weight_gradient";
        let (x, y) = (&inputs[0].shape, &inputs[1].shape);
        if x.len() < 3 || y.len() != x.len() {
            let message = format!("shapes {x:?} and {y:?}, expected [N, C, …] and [N, O, …]");
            return Err(Error::shape(op, message));
        }
        let mut weight = vec![y[1], x[1] / self.convolution.groups.max(1)];
        weight.extend(&self.kernel);
        if weight.contains(&0) {
            let message = format!("a weight of shape {weight:?}");
            return Err(Error::shape(op, message));
        }
        Ok(weight)
    }

    /// The sizes for operands of these types, which [`Operation::infer`] has
    /// accepted.
    pub fn geometry(&self, inputs: &[TensorType]) -> Geometry {
        self.weight_shape(inputs)
            .and_then(|w| self.convolution.geometry("conv_weight_gradient", &inputs[0].shape, &w))
            .expect("was inferred")
    }
}

impl Operation for ConvWeightGradient {
    fn name(&self) -> &'static str {
        "conv_weight_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "conv_weight_gradient";
        super::expect_inputs(op, inputs, 2)?;
        super::expect_dtype(op, &inputs[0], DType::F32)?;
        super::expect_dtype(op, &inputs[1], DType::F32)?;
        let weight = self.weight_shape(inputs)?;
        let output = self.convolution.output_shape(op, &inputs[0].shape, &weight)?;
        expect_shape(op, &inputs[1], &output)?;
        Ok(vec![TensorType::f32(weight)])
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(TensorType::bytes).sum();
        Cost { flops: self.geometry(inputs).flops(), bytes }
    }

    fn workspace_bytes(&self, inputs: &[TensorType], capabilities: &Capabilities) -> u64 {
        self.geometry(inputs).weight_bytes(capabilities)
    }

    /// Parameters of both kernels: those of the geometry (22), then the windows
    /// of a slice and the slices.
    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let g = self.geometry(&types);
        let slices = g.weight_slices();
        let windows = g.batch * g.output_numel();
        let out = cx.outputs[0].storage;
        let to = if slices > 1 { cx.workspace.expect("slices need workspace") } else { out };
        let mut bound = map::Bindings::default();
        bound.bind_named("x", cx.inputs[0].storage, DType::F32);
        bound.bind_named("gradient", cx.inputs[1].storage, DType::F32);
        bound.bind_named("out", to, DType::F32);
        let mut parameters = g.parameters();
        parameters.extend([windows.div_ceil(slices) as u32, slices as u32]);
        if g.out_channels < Tile::LEAST_ROWS {
            let constants = vec![("WORKGROUP".into(), WORKGROUP)];
            let groups = cx.capabilities.fold_groups(g.weight_numel() as u64);
            let name = "conv_weight_gradient_direct";
            return vec![bound.launch(name, constants, vec![], groups, parameters)];
        }
        let tile = Tile::of(g.out_channels);
        let across = (g.in_channels * g.taps()).div_ceil(tile.columns);
        let tiles = across * g.out_channels.div_ceil(tile.rows) * g.groups * slices;
        let groups = cx.capabilities.fold_groups(tiles as u64);
        let name = "conv_weight_gradient";
        let mut out_launches =
            vec![bound.launch(name, tile.constants(), vec![], groups, parameters)];
        if slices > 1 {
            let sizes = [slices, g.weight_numel()];
            out_launches.push(reduce::column_sums(cx.capabilities, to, sizes, out, false));
        }
        out_launches
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let t = self.infer(&types).expect("checked").remove(0);
        let mut values = vec![0.0; t.numel()];
        self.geometry(&types).products(|x, w, y| {
            values[w] += inputs[0].values[x] * inputs[1].values[y];
        });
        vec![Tensor64::new(&t, values)]
    }
}
