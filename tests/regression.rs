//! One test for each fault that was found, named after it.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll::conformance::execute;
use plimsoll::expression::{E, Scalar};
use plimsoll::graph::Leaf;
use plimsoll::models::Mlp;
use plimsoll::ops::{CrossEntropy, Emit, Map, Op, Tensor64, TensorType};
use plimsoll::planner::PartKind;
use plimsoll::{
    DType, Device, Error, Graph, Init, Loss, Mode, Model, NullDevice, PlanRequest, Result,
    autodiff, plan, program,
};
use support::{AMPLE, adamw, devices};

fn graph() -> Graph {
    Graph::new(Mode::Train)
}

fn plan_of(model: &dyn Model, batch: usize) -> Result<plimsoll::Plan> {
    let recipe = adamw();
    let request = PlanRequest { ..PlanRequest::new(model, &recipe, batch, AMPLE) };
    plan(&request, NullDevice::new(1 << 30).description())
}

/// Fusion refused to move the reading of any weight that the same part updates
/// later, so bias and relu ran as passes of their own.
#[test]
fn bias_and_relu_fuse_although_the_bias_is_updated_later() {
    let model = Mlp::new(&[20, 16, 12, 10]).expect("valid");
    let plan = plan_of(&model, 8).expect("plans");
    let forward: Vec<&Op> = plan.parts[0]
        .nodes
        .iter()
        .map(|n| &n.op)
        .take_while(|o| o.name() != "cross_entropy")
        .collect();
    let names: Vec<&str> = forward.iter().map(|o| o.name()).collect();
    assert_eq!(names, ["map", "matmul", "matmul", "matmul"]);
}

/// A map without positional inputs (a single random draw) was inlined into a
/// larger map, which drew anew at every element.
#[test]
fn a_scalar_draw_is_not_fused_into_a_larger_map() {
    let mut g = graph();
    let x = g.input("x", &[4, 3], DType::F32).expect("fine");
    let rng = g.leaf("rng", TensorType::new([4], DType::U32), Leaf::Input).expect("fine");
    let draw = g.map(&[rng], |_| E::random(0, 0, 0).unit()).expect("fine");
    let y = g.map(&[x, draw], |i| &i[0] * &i[1]).expect("fine");
    let ones = Tensor64::new(&TensorType::f32([4, 3]), vec![1.0; 12]);
    let words = Tensor64::new(&TensorType::new([4], DType::U32), vec![1.0, 2.0, 3.0, 0.0]);
    let leaves = BTreeMap::from([("x".to_string(), ones), ("rng".to_string(), words)]);
    for device in devices() {
        let out = execute(&device, g.clone(), &leaves, &[y]).expect("runs");
        assert!(out[0].values.iter().all(|v| *v == out[0].values[0]), "{:?}", out[0].values);
    }
}

/// Element counts wrapped around, so that huge shapes passed as empty ones.
#[test]
fn counts_that_overflow_are_refused() {
    let mut g = graph();
    let huge = g.parameter("w", &[1 << 31, 1 << 31, 4], Init::Zeros);
    assert!(matches!(huge, Err(Error::Shape { .. })));
    let a = g.input("a", &[1 << 22, 1, 1], DType::F32).expect("fine");
    let b = g.input("b", &[1, 1 << 22, 1], DType::F32).expect("fine");
    assert!(matches!(g.map(&[a, b], |i| &i[0] + &i[1]), Err(Error::Shape { .. })));
}

/// Mixed scalar types were computed on bits on one device, by value on another.
#[test]
fn mixed_types_are_refused() {
    let mut g = graph();
    let x = g.input("x", &[3], DType::F32).expect("fine");
    let i = g.input("i", &[3], DType::I32).expect("fine");
    assert!(matches!(g.map(&[x, i], |v| &v[0] * &v[1]), Err(Error::Shape { .. })));
    assert!(matches!(g.map(&[i], |v| v[0].exp()), Err(Error::Shape { .. })));
    assert!(g.map(&[x, i], |v| &v[0] * v[1].cast(Scalar::F32)).is_ok());
}

struct Odd;

impl Model for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let x = g.input("x", &[batch, 1], DType::F32)?;
        let w = g.parameter("w", &[1], Init::Constant(1.0))?;
        let per_item = g.map(&[x, w], |i| &i[0] * &i[1])?;
        let flat = g.reshape(x, &[batch])?;
        let weight = g.map(&[flat], |x| &x[0] * 0.0 + 1.0)?;
        Ok(Loss { per_item, weight, correct: None })
    }
}

/// A loss of [n, 1] with weights of [n] was broadcast to [n, n].
#[test]
fn loss_and_weight_must_have_one_shape() {
    assert!(matches!(plan_of(&Odd, 4), Err(Error::Shape { .. })));
}

/// A weight that is read by element had no gradient, and nobody said so.
#[test]
fn a_weight_read_by_element_has_no_silent_gradient() {
    let mut g = graph();
    let x = g.input("x", &[3], DType::F32).expect("fine");
    let s = g.parameter("s", &[1], Init::Constant(1.0)).expect("fine");
    let y = g.map(&[x, s], |i| &i[0] * E::at(1, 0)).expect("fine");
    assert!(autodiff::backward(&mut g, &[(y, x)], &[s]).is_err());
}

/// Assigning to an input panicked in the planner.
#[test]
fn assigning_to_an_input_is_refused() {
    let mut g = graph();
    let x = g.input("x", &[3], DType::F32).expect("fine");
    let y = g.map(&[x], |i| &i[0] + 1.0).expect("fine");
    assert!(matches!(g.assign(x, y), Err(Error::Shape { .. })));
}

/// The mean over an axis named twice divided twice.
#[test]
fn an_axis_named_twice_counts_once() {
    let mut g = graph();
    let x = g.input("x", &[4], DType::F32).expect("fine");
    let mean = g.mean(x, &[0, 0]).expect("fine");
    let content = Tensor64::new(&TensorType::f32([4]), vec![1.0, 2.0, 3.0, 6.0]);
    let leaves = BTreeMap::from([("x".to_string(), content)]);
    let device: Arc<dyn Device> = devices().remove(0);
    assert_eq!(execute(&device, g, &leaves, &[mean]).expect("runs")[0].values, [3.0]);
}

/// A logit of minus infinity, that of a masked class, made the loss NaN where
/// there is no smoothing: 0 times infinity.
#[test]
fn masked_classes_leave_the_loss_finite() {
    let mut g = graph();
    let logits = g.input("logits", &[1, 3], DType::F32).expect("fine");
    let labels = g.input("labels", &[1], DType::I32).expect("fine");
    let loss = g.cross_entropy(logits, labels, CrossEntropy::default()).expect("fine");
    let row = vec![0.0, f64::NEG_INFINITY, 0.0];
    let leaves = BTreeMap::from([
        ("logits".to_string(), Tensor64::new(&TensorType::f32([1, 3]), row)),
        ("labels".to_string(), Tensor64::new(&TensorType::new([1], DType::I32), vec![2.0])),
    ]);
    for device in devices() {
        let out = execute(&device, g.clone(), &leaves, &[loss.per_item]).expect("runs");
        assert!((out[0].values[0] - 2f64.ln()).abs() < 1e-6, "{:?}", out[0].values);
    }
}

/// Fusion joined operands until their strides no longer fitted a parameter block.
#[test]
fn fusion_keeps_within_the_parameter_block() {
    let mut g = graph();
    let rank = 10;
    let alternating =
        |first: usize| (0..rank).map(|d| if d % 2 == first { 2 } else { 1 }).collect();
    let mut sum = None;
    for k in 0..6 {
        let shape: Vec<usize> = alternating(k % 2);
        let x = g.input(&format!("x{k}"), &shape, DType::F32).expect("fine");
        let next = match sum {
            None => x,
            Some(sum) => g.map(&[sum, x], |i| &i[0] + &i[1]).expect("fine"),
        };
        sum = Some(next);
    }
    let mut leaves = BTreeMap::new();
    for k in 0..6 {
        let t = TensorType::f32(Vec::from_iter(alternating(k % 2)));
        leaves.insert(format!("x{k}"), Tensor64::new(&t, vec![1.0; t.numel()]));
    }
    for device in devices() {
        let out = execute(&device, g.clone(), &leaves, &[sum.expect("six")]).expect("runs");
        assert!(out[0].values.iter().all(|v| *v == 6.0));
    }
}

/// The CPU added a product to memory that held the addend, but added the
/// addend to the product where they lay apart: other bits once k is large.
#[test]
fn adding_in_place_gives_the_bits_of_adding_elsewhere() {
    let run = |in_place: bool| {
        let mut g = graph();
        let (m, n, k) = (5, 7, 2000);
        let a = g.input("a", &[m, k], DType::F32).expect("fine");
        let b = g.input("b", &[k, n], DType::F32).expect("fine");
        let c = g.input("c", &[m, n], DType::F32).expect("fine");
        let p = g.matmul(a, b, false, false).expect("fine");
        let sum = g.map(&[p, c], |i| &i[0] + &i[1]).expect("fine");
        // A second reader keeps `c` alive; a copy of the sum is what is stored,
        // so that the sum itself may lie in `c`.
        let mut outputs = vec![g.emit(copy(&g, sum), &[sum]).expect("fine")[0]];
        if !in_place {
            outputs.push(g.map(&[sum, c], |i| &i[0] * &i[1]).expect("fine"));
        }
        let noise = |shape: [usize; 2], seed| {
            let mut s = plimsoll::philox::Stream::new(seed, 0);
            let t = TensorType::f32(shape);
            Tensor64::new(&t, (0..t.numel()).map(|_| f64::from(s.normal())).collect())
        };
        let leaves = BTreeMap::from([
            ("a".to_string(), noise([m, k], 1)),
            ("b".to_string(), noise([k, n], 2)),
            ("c".to_string(), noise([m, n], 3)),
        ]);
        let device: Arc<dyn Device> = devices().remove(0);
        execute(&device, g, &leaves, &outputs).expect("runs").remove(0).values
    };
    assert_eq!(run(true), run(false));
}

/// A reshape of its own kind: a permutation of one dimension, which nothing fuses.
fn copy(g: &Graph, value: plimsoll::ops::ValueId) -> Op {
    let order = (0..g.shape(value).len()).collect();
    Op::Permute(plimsoll::ops::Permute { order })
}

/// A map whose expression the graph has not typed is refused by the op itself.
#[test]
fn ops_check_their_own_expressions() {
    let e = plimsoll::expression::Expression::new(vec![DType::I32], &[E::input(0).exp()]);
    let op = Map { expression: e, shape: vec![2] };
    assert!(plimsoll::ops::Operation::infer(&op, &[TensorType::new([2], DType::I32)]).is_err());
    let mut g = graph();
    let x = g.input("x", &[2], DType::I32).expect("fine");
    assert!(g.emit(Op::Map(op), &[x]).is_err());
    assert!(program::finish(&g, PartKind::Update, &BTreeSet::new()).is_ok());
}

/// Several threads on one device: one thread's poll took another's callback
/// and had not run it yet, and the other gave up.
#[test]
fn plans_of_one_device_run_on_many_threads() {
    let mut g = graph();
    let x = g.input("x", &[33], DType::F32).expect("fine");
    let y = g.map(&[x], |i| &i[0] * 2.0).expect("fine");
    let content = Tensor64::new(&TensorType::f32([33]), vec![1.5; 33]);
    let leaves = BTreeMap::from([("x".to_string(), content)]);
    for device in devices() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let out = execute(&device, g.clone(), &leaves, &[y]).expect("runs");
                        assert!(out[0].values.iter().all(|v| *v == 3.0));
                    }
                });
            }
        });
    }
}

/// Two states that are updated from each other were called a cycle.
#[test]
fn states_may_be_updated_from_each_other() {
    let mut g = graph();
    let mut state = |name: &str| {
        let class = plimsoll::ledger::Class::State;
        g.leaf(name, TensorType::f32([3]), Leaf::State(Init::Zeros, class)).expect("fine")
    };
    let (a, b) = (state("a"), state("b"));
    let sum = g.map(&[a, b], |i| &i[0] + &i[1]).expect("fine");
    let difference = g.map(&[a, b], |i| &i[0] - &i[1]).expect("fine");
    g.assign(a, sum).expect("fine");
    g.assign(b, difference).expect("fine");
    let part = program::finish(&g, PartKind::Update, &BTreeSet::new()).expect("can be ordered");
    let layout = plimsoll::planner::liveness::Layout::new(
        &[part],
        &plimsoll::launch::Capabilities::PORTABLE,
    )
    .expect("lays out");
    let device = devices().remove(0);
    let plan = plimsoll::planner::place::place(layout, device.description()).expect("is placed");
    let plan = Arc::new(plan);
    let ledger = plimsoll::ledger::Ledger::new(plan.peak_bytes);
    let mut executor = device.load(&plan, &ledger).expect("loads");
    let at = |name: &str| plan.leaves[name].operand.storage;
    executor.write(at("a"), 0, bytemuck::cast_slice(&[5f32; 3])).expect("writes");
    executor.write(at("b"), 0, bytemuck::cast_slice(&[2f32; 3])).expect("writes");
    executor.run(0, &[]).expect("runs");
    let mut read = |name: &str| {
        let mut bytes = [0; 12];
        executor.read(at(name), 0, &mut bytes).expect("reads");
        bytemuck::pod_read_unaligned::<[f32; 3]>(&bytes)
    };
    assert_eq!((read("a"), read("b")), ([7.0; 3], [3.0; 3]));
}

/// A plan made for one optimizer ran silently with the settings of another.
#[test]
fn a_plan_is_loaded_with_its_own_optimizer() {
    let model = Mlp::new(&[20, 16, 10]).expect("valid");
    let plan = Arc::new(plan_of(&model, 8).expect("plans"));
    let ledger = plimsoll::ledger::Ledger::new(plan.peak_bytes);
    let other = plimsoll::optimizers::Sgd::default().into();
    let device = NullDevice::new(1 << 30);
    let refused = plimsoll::Trainer::load(plan, other, &device, ledger, 0);
    assert!(matches!(refused, Err(Error::Setting { name: "recipe", .. })));
}

/// A GPT-2 saved here and loaded under the names of its publisher had its
/// matrices turned: the square ones without an error.
#[test]
#[cfg(feature = "cpu")]
fn own_weights_are_not_turned_by_a_publishers_map() {
    use plimsoll::Trainer;
    use plimsoll::weights::{NameMap, load_model, save_model};
    let model = plimsoll::models::Gpt2::TINY;
    let recipe = adamw();
    let device = plimsoll::devices::open("cpu").expect("is there");
    let request = PlanRequest::new(&model, &recipe, 1, 64 << 20);
    let trainer = |seed| Trainer::new(&request, &*device, seed).expect("plans");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("weights.safetensors");
    let (mut first, mut second) = (trainer(1), trainer(2));
    save_model(&mut first, &path).expect("saves");
    load_model(&mut second, &path, &NameMap::hugging_face_gpt2()).expect("fits");
    for name in ["h.0.attn.c_proj.weight", "h.1.mlp.c_fc.weight"] {
        let read = |t: &mut Trainer| t.read_f32(name).expect("is there");
        assert_eq!(read(&mut first), read(&mut second), "{name}");
    }
}

/// The reference of an op of one's own handed it bytes as words of four.
#[test]
fn own_ops_get_bytes_as_bytes_in_their_reference() {
    use plimsoll::custom_op::{Custom, CustomKernel, CustomOp, HostTensor, HostTensorMut};
    #[derive(Debug)]
    struct Widen;
    impl CustomOp for Widen {
        fn name(&self) -> &str {
            "widen"
        }
        fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
            Ok(vec![TensorType::f32(inputs[0].shape.clone())])
        }
        fn wgsl(&self, _inputs: &[TensorType], _outputs: &[TensorType]) -> CustomKernel {
            CustomKernel { source: String::new(), groups: 1, parameters: vec![] }
        }
        fn compute(&self, inputs: &[HostTensor<'_>], outputs: &mut [HostTensorMut<'_>]) {
            let x = inputs[0].elements::<u8>();
            assert_eq!(x.len(), 5);
            let y = outputs[0].elements::<f32>();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = f32::from(*x));
        }
    }
    let values = vec![0.0, 7.0, 255.0, 3.0, 128.0];
    let x = Tensor64::new(&TensorType::new([5], DType::U8), values.clone());
    let op = Op::Custom(Custom::new(Widen));
    assert_eq!(op.reference(&[x])[0].values, values);
}
