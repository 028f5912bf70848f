//! Ops that users bring: the same on every device, with gradients, in a plan
//! like any other, and their faults told.

mod support;

use plimsoll::custom_op::{Custom, CustomKernel, CustomOp, HostTensor, HostTensorMut};
use plimsoll::graph::{Graph, Mode};
use plimsoll::ops::{Emit, Op, TensorType, ValueId};
use plimsoll::{DType, Error, Result};
use support::devices;
use support::error::{bound, check};
use support::evaluate::{Given, Tensor, evaluate};

/// Sums of neighbours within rows of [rows, width]: y[i] = x[i] + weight·x[i+1],
/// the last by itself; reversed, its own gradient.
#[derive(Clone, Debug)]
struct Neighbours {
    weight: f32,
    reversed: bool,
    /// A source that does not compile.
    broken: bool,
}

impl CustomOp for Neighbours {
    fn name(&self) -> &str {
        // Like a family of built-in kernels, to no effect.
        "conv_of_neighbours"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        match inputs {
            [x] if x.dtype == DType::F32 && x.shape.len() == 2 => Ok(vec![x.clone()]),
            _ => Err(Error::shape(self.name(), "takes an f32 tensor [rows, width]")),
        }
    }

    fn wgsl(&self, inputs: &[TensorType], _outputs: &[TensorType]) -> CustomKernel {
        let (other, at_edge) = match self.reversed {
            false => ("i + 1u", "i % width == width - 1u"),
            true => ("i - 1u", "i % width == 0u"),
        };
        let source = format!(
            "@compute @workgroup_size(32)
             fn main(
                 @builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32,
             ) {{
                 let i = linear_group(group, groups) * 32u + lane;
                 let width = parameter(1u);
                 if (i >= parameter(0u)) {{ return; }}
                 var y = load_input0(i);
                 if (!({at_edge})) {{
                     y += bitcast<f32>(parameter(2u)) * load_input0({other});
                 }}
                 store_output0(i, y);
             }}{}",
            if self.broken { " fn" } else { "" }
        );
        let numel = inputs[0].numel() as u32;
        let parameters = vec![numel, inputs[0].shape[1] as u32, self.weight.to_bits()];
        CustomKernel { source, groups: numel.div_ceil(32).into(), parameters }
    }

    fn compute(&self, inputs: &[HostTensor<'_>], outputs: &mut [HostTensorMut<'_>]) {
        let (x, width) = (inputs[0].elements::<f32>(), inputs[0].tensor.shape[1]);
        for (i, y) in outputs[0].elements::<f32>().iter_mut().enumerate() {
            let other = match (self.reversed, i % width) {
                (false, at) if at + 1 < width => x[i + 1],
                (true, at) if at > 0 => x[i - 1],
                _ => 0.0,
            };
            *y = x[i] + self.weight * other;
        }
    }

    fn vjp(
        &self,
        cx: &mut dyn Emit,
        _inputs: &[ValueId],
        _outputs: &[ValueId],
        gradients: &[Option<ValueId>],
        _wanted: &[bool],
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(g) = gradients[0] else { return Ok(vec![None]) };
        let op = Neighbours { reversed: !self.reversed, ..self.clone() };
        Ok(vec![Some(cx.emit(Op::Custom(Custom::new(op)), &[g])?[0])])
    }
}

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    let numel = shape.iter().product::<usize>();
    let words = (0..numel).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_bits()).collect();
    Tensor { name: name.into(), shape: shape.to_vec(), dtype: DType::F32, words }
}

const PLAIN: Neighbours = Neighbours { weight: -0.75, reversed: false, broken: false };

#[test]
fn own_ops_compute_and_have_gradients_on_every_device() {
    for shape in [[1, 1], [3, 5], [67, 129]] {
        let (x, upstream) = (tensor("x", &shape), tensor("g", &shape).floats());
        let value = x.floats();
        let width = shape[1];
        let at = |x: &[f32], i: usize| f64::from(x[i]);
        let forward = |i: usize| {
            let next = if i % width + 1 < width { at(&value, i + 1) } else { 0.0 };
            at(&value, i) - 0.75 * next
        };
        let backward = |i: usize| {
            let last = if !i.is_multiple_of(width) { at(&upstream, i - 1) } else { 0.0 };
            at(&upstream, i) - 0.75 * last
        };
        let numel = value.len();
        for device in devices() {
            let label = format!("{shape:?} on {}", device.description().name);
            for given in [Given::Parameters, Given::Inputs] {
                let got =
                    evaluate(&*device, std::slice::from_ref(&x), given, &[&upstream], |g, x| {
                        g.emit(Op::Custom(Custom::new(PLAIN)), &[x[0]])
                    });
                let got = got.unwrap_or_else(|e| panic!("{label}: {e}"));
                let expected: Vec<f64> = (0..numel).map(forward).collect();
                check(&label, &got.outputs[0], &expected, bound(2));
                let expected: Vec<f64> = (0..numel).map(backward).collect();
                let gradient = got.gradients[0].as_ref().expect("there is one");
                check(&label, gradient, &expected, bound(2));
            }
        }
    }
}

#[test]
fn faults_of_own_ops_are_told() {
    let mut g = Graph::new(Mode::Train);
    let x = g.input("x", &[4], DType::F32).expect("fine");
    let error = g.emit(Op::Custom(Custom::new(PLAIN)), &[x]).expect_err("one dimension");
    assert!(error.to_string().contains("[rows, width]"), "{error}");
    let broken = Neighbours { broken: true, ..PLAIN };
    for device in devices().iter().filter(|d| d.description().backend != "cpu") {
        let x = tensor("x", &[3, 5]);
        let upstream = x.floats();
        let got = evaluate(&**device, &[x], Given::Inputs, &[&upstream], |g, x| {
            g.emit(Op::Custom(Custom::new(broken.clone())), &[x[0]])
        });
        match got.map(|r| r.outputs) {
            Err(Error::Kernel { kernel, .. }) => assert_eq!(kernel, "conv_of_neighbours"),
            other => panic!("{}: {other:?}", device.description().name),
        }
    }
}

/// A plan can be written to a file; what cannot be read back says why.
#[test]
fn plans_with_own_ops_are_not_read_from_files() {
    let op = Op::Custom(Custom::new(PLAIN));
    let text = serde_json::to_string(&op).expect("is written");
    let error = serde_json::from_str::<Op>(&text).expect_err("cannot be read");
    assert!(error.to_string().contains("conv_of_neighbours"), "{error}");
    assert!(op == Op::Custom(Custom::new(PLAIN)));
    assert!(op != Op::Custom(Custom::new(Neighbours { weight: 1.0, ..PLAIN })));
}
