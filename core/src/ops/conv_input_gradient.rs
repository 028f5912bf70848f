//! `conv_input_gradient`: the gradient of a convolution's input; a forward op
//! too, the transposed convolution.

use serde::{Deserialize, Serialize};

use super::conv_gather::{Gather, gather};
use super::convolution::{Convolution, Geometry};
use super::pool::expect_shape;
use super::{
    Conv, ConvWeightGradient, Cost, Emit, LowerContext, Op, Operation, Tensor64, TensorType,
    ValueId,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::expression::Expression;
use crate::launch::{Capabilities, Launch};

/// Inputs: weight [O, C / groups, …] f32, gradient of the output [N, O, …].
/// Output: the gradient of the input [N, C, …].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvInputGradient {
    /// The convolution.
    pub convolution: Convolution,
    /// Shape of its input: that of the output here.
    pub input: Vec<usize>,
}

impl ConvInputGradient {
    /// The sizes for operands of these types, which [`Operation::infer`] has
    /// accepted.
    pub fn geometry(&self, inputs: &[TensorType]) -> Geometry {
        self.convolution
            .geometry("conv_input_gradient", &self.input, &inputs[0].shape)
            .expect("was inferred")
    }
}

impl Operation for ConvInputGradient {
    fn name(&self) -> &'static str {
        "conv_input_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let op = "conv_input_gradient";
        super::expect_inputs(op, inputs, 2)?;
        super::expect_dtype(op, &inputs[0], DType::F32)?;
        super::expect_dtype(op, &inputs[1], DType::F32)?;
        let output = self.convolution.output_shape(op, &self.input, &inputs[0].shape)?;
        expect_shape(op, &inputs[1], &output)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None; 2]) };
        let mut out = vec![None, None];
        if wanted[0] {
            // The roles of input and output are swapped.
            let kernel = cx.tensor_type(inputs[0]).shape[2..].to_vec();
            let op = ConvWeightGradient { convolution: self.convolution.clone(), kernel };
            out[0] = Some(cx.emit(Op::ConvWeightGradient(op), &[g, inputs[1]])?[0]);
        }
        if wanted[1] {
            let op = Conv::new(self.convolution.clone());
            out[1] = Some(cx.emit(Op::Conv(op), &[g, inputs[0]])?[0]);
        }
        Ok(out)
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(TensorType::bytes).sum();
        Cost { flops: self.geometry(inputs).flops(), bytes }
    }

    fn workspace_bytes(&self, inputs: &[TensorType], capabilities: &Capabilities) -> u64 {
        self.geometry(inputs).input_bytes(capabilities)
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let operands = [cx.inputs[0].storage, cx.inputs[1].storage];
        let epilogue = Expression::identity();
        vec![gather(cx, &self.geometry(&types), Gather::InputGradient, operands, (&epilogue, &[]))]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let t = TensorType::f32(self.input.clone());
        let weight = TensorType::f32(inputs[0].shape.clone());
        let mut values = vec![0.0; t.numel()];
        self.geometry(&[weight]).products(|x, w, y| {
            values[x] += inputs[0].values[w] * inputs[1].values[y];
        });
        vec![Tensor64::new(&t, values)]
    }
}
