//! `conv`: a convolution (cross-correlation, as in PyTorch) over one to three
//! dimensions, with an epilogue expression.
//!
//! On a GPU it is an implicit matrix product: workgroups gather the windows as
//! they need them, so that the matrix of all windows never exists. On the CPU a
//! bounded part of that matrix does, in workspace.

use serde::{Deserialize, Serialize};

use super::conv_gather::{Gather, gather};
use super::convolution::{Convolution, Geometry};
use super::{
    ConvInputGradient, ConvWeightGradient, Cost, Emit, LowerContext, Op, Operation, Tensor64,
    TensorType, ValueId, map,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expression::Expression;
use crate::launch::{Capabilities, Launch};

/// Inputs: x [N, C, …] f32 with one to three dimensions behind the channels,
/// weight [O, C / groups, …] f32. Output: [N, O, …].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// Stride, padding, dilation and groups.
    pub convolution: Convolution,
    /// Input 0 is the convolution's element; the others are the op's inputs
    /// from the third on, read by position of the output. One f32 output.
    pub epilogue: Expression,
}

impl Conv {
    /// A plain convolution.
    pub fn new(convolution: Convolution) -> Conv {
        Conv { convolution, epilogue: Expression::identity() }
    }

    /// The sizes for operands of these types, which [`Operation::infer`] has
    /// accepted.
    pub fn geometry(&self, inputs: &[TensorType]) -> Geometry {
        self.convolution.geometry("conv", &inputs[0].shape, &inputs[1].shape).expect("was inferred")
    }
}

impl Operation for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        if inputs.len() < 2 {
            return Err(Error::shape("conv", "takes an input and a weight"));
        }
        super::expect_dtype("conv", &inputs[0], DType::F32)?;
        super::expect_dtype("conv", &inputs[1], DType::F32)?;
        let shape = self.convolution.output_shape("conv", &inputs[0].shape, &inputs[1].shape)?;
        let out = TensorType::f32(shape);
        let mut operands = vec![out.clone()];
        operands.extend_from_slice(&inputs[2..]);
        map::check_inputs("conv", &self.epilogue, &operands, &out.shape)?;
        Ok(vec![out])
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None; inputs.len()]) };
        if !self.epilogue.is_identity() {
            return Err(Error::shape("conv", "one with an epilogue is not differentiated"));
        }
        let (x, w) = (inputs[0], inputs[1]);
        let mut out = vec![None, None];
        if wanted[0] {
            let input = cx.tensor_type(x).shape;
            let op = ConvInputGradient { convolution: self.convolution.clone(), input };
            out[0] = Some(cx.emit(Op::ConvInputGradient(op), &[w, g])?[0]);
        }
        if wanted[1] {
            let kernel = cx.tensor_type(w).shape[2..].to_vec();
            let op = ConvWeightGradient { convolution: self.convolution.clone(), kernel };
            out[1] = Some(cx.emit(Op::ConvWeightGradient(op), &[x, g])?[0]);
        }
        Ok(out)
    }

    fn cost(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Cost {
        let results = outputs[0].numel() as u64;
        Cost {
            flops: self.geometry(inputs).flops() + results * self.epilogue.flops(),
            bytes: inputs.iter().chain(outputs).map(TensorType::bytes).sum(),
        }
    }

    fn workspace_bytes(&self, inputs: &[TensorType], capabilities: &Capabilities) -> u64 {
        self.geometry(inputs).forward_bytes(capabilities)
    }

    fn lower(&self, cx: &LowerContext<'_>) -> Vec<Launch> {
        let types: Vec<TensorType> = cx.inputs.iter().map(|o| o.tensor.clone()).collect();
        let operands = [cx.inputs[1].storage, cx.inputs[0].storage];
        let epilogue = (&self.epilogue, &cx.inputs[2..]);
        vec![gather(cx, &self.geometry(&types), Gather::Forward, operands, epilogue)]
    }

    fn reference(&self, inputs: &[Tensor64]) -> Vec<Tensor64> {
        let types: Vec<TensorType> =
            inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
        let t = self.infer(&types).expect("checked").remove(0);
        let mut values = vec![0.0; t.numel()];
        self.geometry(&types).products(|x, w, y| {
            values[y] += inputs[0].values[x] * inputs[1].values[w];
        });
        let mut operands = vec![Tensor64::new(&t, values)];
        operands.extend_from_slice(&inputs[2..]);
        let finish = |i: usize| map::evaluate_at(&self.epilogue, &operands, &t.shape, i)[0].float();
        vec![Tensor64::new(&t, (0..t.numel()).map(finish).collect())]
    }
}
