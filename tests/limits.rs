//! The limits of sizes: elements that kernels can index, workgroups along a
//! dimension, bytes that a page can hold.

use plimsoll::expression::{E, Expression};
use plimsoll::graph::{Loss, Model};
use plimsoll::launch::{Capabilities, PARAMETER_WORDS};
use plimsoll::ops::{
    AvgPool, AvgPoolGradient, Concat, CrossEntropy, CrossEntropyGradient, Embedding,
    EmbeddingGradient, LinearCrossEntropy, LinearCrossEntropyGradient, LowerContext, Map, Matmul,
    MaxPool, MaxPoolGradient, Op, Operand, Pad, Permute, Pool, Reduce, ReduceKind, Slice, Split,
    TensorType, Upsample, UpsampleGradient, UpsampleMode, ValueId,
};
use plimsoll::optimizers::Sgd;
use plimsoll::{DType, Device, Error, Graph, Init, Mode, NullDevice, PlanRequest, Result, plan};

/// More than 65,535 workgroups of 256 invocations.
const MANY: usize = 1 << 25;

/// Ops of many elements, with their inputs.
fn large_ops() -> Vec<(Op, Vec<TensorType>)> {
    let f = |shape: &[usize]| TensorType::f32(shape);
    let i = |shape: &[usize]| TensorType::new(shape, DType::I32);
    let relu = Expression::new(vec![DType::F32], &[E::input(0).max(0.0)]);
    let reduce = |shape: &[usize], first: usize| {
        let prologue = Expression::identity();
        let op = Reduce { kind: ReduceKind::Sum, prologue, shape: shape.to_vec(), first, count: 1 };
        (Op::Reduce(op), vec![f(shape)])
    };
    let loss = CrossEntropy::default();
    let linear = LinearCrossEntropy::default();
    let rows = 1 << 17;
    let pool = Pool::new(&[2, 2]);
    let average = AvgPool { pool: pool.clone(), count_include_pad: true };
    let (planes, pooled) = ([64, 64, 128, 128], [64, 64, 64, 64]);
    let enlarge = Upsample { factors: vec![2, 2], mode: UpsampleMode::Linear };
    let gradient = LinearCrossEntropyGradient { forward: linear.clone(), wanted: [true; 3] };
    let max_gradient = MaxPoolGradient { pool: pool.clone(), input: planes.to_vec() };
    let average_gradient = AvgPoolGradient { forward: average.clone(), input: planes.to_vec() };
    vec![
        (Op::Map(Map { expression: relu.clone(), shape: vec![MANY] }), vec![f(&[MANY])]),
        // As large as a tensor may be.
        (
            Op::Map(Map { expression: relu, shape: vec![65_536, 32_767] }),
            vec![f(&[65_536, 32_767])],
        ),
        reduce(&[MANY, 2], 1),
        reduce(&[2, MANY], 0),
        (Op::Matmul(Matmul::new(false, false)), vec![f(&[rows, 8, 8]); 2]),
        (Op::Matmul(Matmul::new(false, false)), vec![f(&[MANY, 1]), f(&[1, 64])]),
        (Op::Permute(Permute { order: vec![1, 0] }), vec![f(&[MANY, 3])]),
        (Op::Slice(Slice { starts: vec![1], ends: vec![MANY] }), vec![f(&[MANY])]),
        (Op::Pad(Pad { before: vec![1], after: vec![1] }), vec![f(&[MANY])]),
        (Op::Concat(Concat { axis: 0 }), vec![f(&[MANY]); 2]),
        (Op::Split(Split { axis: 0, sizes: vec![MANY, 1] }), vec![f(&[MANY + 1])]),
        (Op::Embedding(Embedding), vec![f(&[50_257, 1024]), i(&[rows])]),
        (
            Op::EmbeddingGradient(EmbeddingGradient { rows: 50_257 }),
            vec![i(&[rows]), f(&[rows, 1024])],
        ),
        (Op::CrossEntropy(loss.clone()), vec![f(&[rows, 100]), i(&[rows])]),
        (
            Op::CrossEntropyGradient(CrossEntropyGradient { forward: loss }),
            vec![f(&[rows, 100]), i(&[rows]), f(&[rows]), f(&[rows])],
        ),
        (
            Op::LinearCrossEntropy(linear),
            vec![f(&[rows, 1024]), f(&[50_257, 1024]), i(&[rows]), f(&[50_257])],
        ),
        (
            Op::LinearCrossEntropyGradient(gradient),
            vec![
                f(&[rows, 1024]),
                f(&[50_257, 1024]),
                i(&[rows]),
                f(&[rows]),
                f(&[rows]),
                f(&[50_257]),
            ],
        ),
        (Op::MaxPool(MaxPool { pool }), vec![f(&planes)]),
        (Op::MaxPoolGradient(max_gradient), vec![i(&pooled), f(&pooled)]),
        (Op::AvgPool(average), vec![f(&planes)]),
        (Op::AvgPoolGradient(average_gradient), vec![f(&pooled)]),
        (Op::Upsample(enlarge.clone()), vec![f(&planes)]),
        (Op::UpsampleGradient(UpsampleGradient { forward: enlarge }), vec![f(&planes)]),
    ]
}

#[test]
fn large_ops_stay_within_the_grid() {
    for (op, inputs) in large_ops() {
        let outputs = op.infer(&inputs).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
        let operands = |types: &[TensorType], first: usize| -> Vec<Operand> {
            let operand =
                |(k, t): (usize, &TensorType)| Operand { storage: first + k, tensor: t.clone() };
            types.iter().enumerate().map(operand).collect()
        };
        let launches = op.lower(&LowerContext {
            capabilities: &Capabilities::PORTABLE,
            inputs: &operands(&inputs, 0),
            outputs: &operands(&outputs, 10),
            workspace: Some(20),
            matmul_variant: None,
        });
        let mut most = 0;
        for launch in launches {
            let name = &launch.kernel.name;
            assert!(launch.groups.iter().all(|g| (1..=65_535).contains(g)), "{name}");
            assert!(launch.parameters.len() <= PARAMETER_WORDS, "{name}");
            most = most.max(launch.groups.iter().map(|g| u64::from(*g)).product());
        }
        // Else this tests nothing; chunks of rows have few groups each.
        let chunked = op.name().starts_with("linear_cross_entropy");
        assert!(most > 65_535 || chunked, "{} takes {most} groups", op.name());
    }
}

#[test]
fn too_many_elements_are_typed_errors() {
    let mut g = Graph::new(Mode::Train);
    let x = g.input("x", &[65_536, 32_767], DType::F32).expect("is the largest");
    let too_large = |result: Result<ValueId>| {
        let error = result.expect_err("is too large");
        assert!(matches!(error, Error::Shape { .. }), "{error:?}");
        error.to_string()
    };
    let message = too_large(g.input("y", &[65_536, 32_768], DType::F32));
    assert!(message.contains("y: shape [65536, 32768]") && message.contains("2³¹"), "{message}");
    let message = too_large(g.pad(x, &[0, 0], &[0, 1]));
    assert!(message.contains("pad"), "{message}");
    too_large(g.pad(x, &[0, usize::MAX], &[0, 0]));
    too_large(g.concat(&[x, x], 0));
    too_large(g.reshape(x, &[usize::MAX, 2]));
    too_large(g.expand(x, &[2, 65_536, 32_767]));
    let planes = g.reshape(x, &[1, 1, 65_536, 32_767]).expect("as many");
    too_large(g.upsample(planes, &[2, 1], UpsampleMode::Nearest));
    too_large(g.upsample(planes, &[usize::MAX, 1], UpsampleMode::Nearest));
}

/// A table of GPT-2's vocabulary and width 1,024, with what follows.
struct Table;

impl Model for Table {
    fn name(&self) -> &str {
        "table"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let table =
            g.scoped("wte", |g| g.parameter("weight", &[50_257, 1024], Init::Normal(0.02)))?;
        let tokens = g.input("tokens", &[batch], DType::I32)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        let hidden = g.embedding(table, tokens)?;
        g.linear_cross_entropy(hidden, table, None, labels, CrossEntropy::default())
    }
}

#[test]
fn a_tensor_larger_than_a_page_is_named() {
    let recipe = Sgd::default().into();
    let request = PlanRequest { ..PlanRequest::new(&Table, &recipe, 8, 1 << 40) };
    let device = NullDevice::new(128 << 20);
    let error = plan(&request, device.description()).map(|_| ()).expect_err("does not fit");
    match &error {
        Error::PageOverrun { tensor, bytes, page_bytes, .. } => {
            assert_eq!((tensor.as_str(), *bytes), ("wte.weight", 50_257 * 1024 * 4));
            assert_eq!(*page_bytes, 128 << 20);
        }
        other => panic!("{other:?}"),
    }
    let message = error.to_string();
    assert!(message.contains("wte.weight") && message.contains("205852672 bytes"), "{message}");
    // Pages of 256 MiB do.
    let device = NullDevice::new(256 << 20);
    plan(&request, device.description()).expect("fits");
}
