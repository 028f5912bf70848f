//! Every golden case, computed by PyTorch in float64, on every device: forward
//! values, gradients, optimizer trajectories and a whole perceptron.

mod support;

use plimsoll::expression::E;
use plimsoll::graph::{Affine, Loss, Model, Running};
use plimsoll::ops::{
    Attention, Convolution, CrossEntropy, Emit, LinearCrossEntropy, Op, Pool, Rope, UpsampleMode,
    ValueId,
};
use plimsoll::optimizers::{Adam, Recipe, Sgd};
use plimsoll::{Batch, DType, Device, Graph, Init, Result};
use support::error::{bound, check, functions};
use support::evaluate::{Given, Tensor, evaluate, gradients_by_step};
use support::fixtures::{Case, File, files};
use support::{devices, trainer};

/// One test for each golden file, by its name.
macro_rules! golden {
    ($($file:ident)*) => {
        $(#[test] fn $file() { run(stringify!($file), cases::$file) })*

        #[test]
        fn every_file_has_a_test() {
            let tested = [$(stringify!($file)),*].map(str::to_string).into();
            assert_eq!(files(), tested);
        }
    };
}
golden!(
    map reduce matmul conv conv_transpose permute slice pad concat split max_pool avg_pool upsample embedding
    attention rope cross_entropy linear_cross_entropy losses norms clipping optimizers mlp
);

fn run(name: &str, test: fn(&dyn Device, Case<'_>)) {
    let file = File::open(name);
    for device in devices() {
        file.cases().for_each(|case| test(&*device, case));
    }
    file.assert_all_used();
}

/// Checks a case with the one output `y` and its gradients, its inputs given
/// as weights and as inputs, whose memory ops may compute in: the bits must be
/// the same.
fn check_simple(
    device: &dyn Device,
    case: Case<'_>,
    value_bound: f64,
    gradient_bound: f64,
    f: impl Fn(&mut Graph, &[ValueId]) -> Result<ValueId>,
) {
    let label = case.label(&device.description().name);
    let (inputs, upstream) = (case.inputs(), case.floats("grad_out.y"));
    let with = |given: Given| {
        evaluate(device, &inputs, given, &[&upstream], |g, x| Ok(vec![f(g, x)?]))
            .unwrap_or_else(|e| panic!("{label}: {e}"))
    };
    let result = with(Given::Parameters);
    check(&label, &result.outputs[0], &case.floats("out.y"), value_bound);
    for (input, gradient) in inputs.iter().zip(&result.gradients) {
        if input.dtype == DType::F32 {
            let label = format!("{label}, gradient of {}", input.name);
            let gradient = gradient.as_ref().unwrap_or_else(|| panic!("{label}: there is none"));
            check(&label, gradient, &case.floats(&format!("grad.{}", input.name)), gradient_bound);
        }
    }
    assert!(result == with(Given::Inputs), "{label}: differs where memory is reused");
}

/// Copies round nothing.
fn check_copy(
    device: &dyn Device,
    case: Case<'_>,
    f: impl Fn(&mut Graph, &[ValueId]) -> Result<ValueId>,
) {
    check_simple(device, case, bound(0), bound(0), f);
}

mod cases {
    use super::*;

    /// Units in the last place within which every device evaluates a function
    /// of moderate argument and its derivative: a few roundings of WGSL's 3 ulp.
    const FUNCTION_ULPS: f64 = 8.0;

    pub fn map(device: &dyn Device, case: Case<'_>) {
        let name = case.text("function");
        let f = |x: &[E]| match name {
            "exp" => x[0].exp(),
            "relu" => x[0].max(0.0),
            "leaky_relu" => x[0].leaky_relu(case.number("slope") as f32),
            "abs" => x[0].abs(),
            "sin" => x[0].sin(),
            "cos" => x[0].cos(),
            "log" => x[0].log(),
            "sqrt" => x[0].sqrt(),
            "rsqrt" => x[0].rsqrt(),
            "tanh" => x[0].tanh(),
            "erf" => x[0].erf(),
            "sigmoid" => x[0].sigmoid(),
            "gelu_tanh" => x[0].gelu_tanh(),
            "gelu_erf" => x[0].gelu(),
            "silu" => x[0].silu(),
            "softplus" => x[0].softplus(),
            "add" => &x[0] + &x[1],
            "sub" => &x[0] - &x[1],
            "mul" => &x[0] * &x[1],
            "div" => &x[0] / &x[1],
            "max" => x[0].max(&x[1]),
            "min" => x[0].min(&x[1]),
            "pow" => x[0].pow(&x[1]),
            other => panic!("no test for the function {other}"),
        };
        // Functions that are e to some power turn an error of that power into
        // a relative error: WGSL grants exp 3 + 2·|x| ulp for it.
        let power = |of: f64| 3.0 + 2.0 * of;
        let largest = |key: &str, f: fn(f32) -> f32| {
            case.floats(key).into_iter().map(|x| f64::from(f(x).abs())).fold(0.0, f64::max)
        };
        let ulps = match name {
            "exp" => power(largest("in.x", |x| x)),
            "pow" => FUNCTION_ULPS + power(largest("in.a", f32::ln) * largest("in.b", |x| x)),
            _ => FUNCTION_ULPS,
        };
        // The gradient of a broadcast operand sums 5 rows.
        check_simple(device, case, functions(ulps), functions(ulps) + bound(5), |g, x| g.map(x, f));
    }

    pub fn reduce(device: &dyn Device, case: Case<'_>) {
        let (kind, axes) = (case.text("kind"), case.sizes("axes"));
        let terms = axes.iter().map(|a| case.get("in.x").shape[*a]).product();
        let (value_bound, gradient_bound) = match kind {
            "sum" => (bound(terms), bound(0)),
            // The gradient is multiplied once.
            "mean" => (bound(terms), bound(1)),
            "max" => (bound(0), bound(0)),
            other => panic!("no test for {other}"),
        };
        check_simple(device, case, value_bound, gradient_bound, |g, x| match kind {
            "sum" => g.sum(x[0], &axes),
            "mean" => g.mean(x[0], &axes),
            _ => g.max(x[0], &axes),
        });
    }

    pub fn matmul(device: &dyn Device, case: Case<'_>) {
        let (ta, tb) = (case.flag("transpose_a"), case.flag("transpose_b"));
        let inner = |x: &str, transposed: bool| {
            let shape = &case.get(x).shape;
            shape[shape.len() - 1 - usize::from(transposed)]
        };
        // The gradient of A sums over columns, that of B over rows.
        let (k, m) = (inner("in.a", ta), inner("in.a", !ta));
        let gradient_terms = m.max(inner("in.b", tb));
        check_simple(device, case, bound(k), bound(gradient_terms), |g, x| {
            g.matmul(x[0], x[1], ta, tb)
        });
    }

    pub fn permute(device: &dyn Device, case: Case<'_>) {
        let order = case.sizes("permutation");
        check_copy(device, case, |g, x| g.permute(x[0], &order));
    }

    pub fn slice(device: &dyn Device, case: Case<'_>) {
        let (starts, ends) = (case.sizes("starts"), case.sizes("ends"));
        check_copy(device, case, |g, x| g.slice(x[0], &starts, &ends));
    }

    pub fn pad(device: &dyn Device, case: Case<'_>) {
        let (before, after) = (case.sizes("before"), case.sizes("after"));
        check_copy(device, case, |g, x| g.pad(x[0], &before, &after));
    }

    pub fn concat(device: &dyn Device, case: Case<'_>) {
        let axis = case.number("axis") as usize;
        check_copy(device, case, |g, x| g.concat(x, axis));
    }

    pub fn split(device: &dyn Device, case: Case<'_>) {
        let label = case.label(&device.description().name);
        let (axis, sizes) = (case.number("axis") as usize, case.sizes("sizes"));
        let upstream: Vec<Vec<f32>> =
            (0..sizes.len() - 1).map(|i| case.floats(&format!("grad_out.{i}"))).collect();
        let upstream: Vec<&[f32]> = upstream.iter().map(Vec::as_slice).collect();
        let result = evaluate(device, &case.inputs(), Given::Inputs, &upstream, |g, x| {
            g.split(x[0], axis, &sizes)
        });
        let result = result.unwrap_or_else(|e| panic!("{label}: {e}"));
        for (i, piece) in result.outputs.iter().enumerate() {
            check(&label, piece, &case.floats(&format!("out.{i}")), bound(0));
        }
        let gradient = result.gradients[0].as_ref().expect("there is one");
        check(&label, gradient, &case.floats("grad.x"), bound(0));
    }

    fn convolution_of(case: Case<'_>) -> Convolution {
        let c = Convolution::new(case.sizes("stride").len()).stride(&case.sizes("stride"));
        let c = c.padding(&case.sizes("padding")).dilation(&case.sizes("dilation"));
        c.groups(case.number("groups") as usize)
    }

    /// Terms of the longest sums of a convolution between tensors of these
    /// shapes: of output, input's gradient and weight's gradient.
    fn longest_sum(weight: &[usize], smaller: &[usize]) -> usize {
        let taps: usize = weight[2..].iter().product();
        let windows = smaller[0] * smaller[2..].iter().product::<usize>();
        (weight[0].max(weight[1]) * taps).max(windows)
    }

    pub fn conv(device: &dyn Device, case: Case<'_>) {
        let c = convolution_of(case);
        let close = bound(longest_sum(&case.get("in.w").shape, &case.get("out.y").shape));
        check_simple(device, case, close, close, |g, x| g.conv(x[1], x[0], &c));
    }

    pub fn conv_transpose(device: &dyn Device, case: Case<'_>) {
        let (c, more) = (convolution_of(case), case.sizes("output_padding"));
        let close = bound(longest_sum(&case.get("in.w").shape, &case.get("in.x").shape));
        check_simple(device, case, close, close, |g, x| g.conv_transpose(x[1], x[0], &c, &more));
    }

    fn pool_of(case: Case<'_>) -> Pool {
        let pool = Pool::new(&case.sizes("kernel"));
        pool.stride(&case.sizes("stride")).padding(&case.sizes("padding"))
    }

    pub fn max_pool(device: &dyn Device, case: Case<'_>) {
        let pool = pool_of(case);
        let window = pool.kernel.iter().product();
        check_simple(device, case, bound(0), bound(window), |g, x| g.max_pool(x[0], &pool));
    }

    pub fn avg_pool(device: &dyn Device, case: Case<'_>) {
        let (pool, include) = (pool_of(case), case.flag("count_include_pad"));
        // A division is within 2.5 ulp.
        let close = bound(pool.kernel.iter().product()) + functions(2.5);
        check_simple(device, case, close, close, |g, x| g.avg_pool(x[0], &pool, include));
    }

    pub fn upsample(device: &dyn Device, case: Case<'_>) {
        let factors = case.sizes("factors");
        let linear = case.flag("linear");
        let mode = if linear { UpsampleMode::Linear } else { UpsampleMode::Nearest };
        let terms = factors.iter().map(|f| 2 * f).product();
        let value = if linear { bound(8) } else { bound(0) };
        check_simple(device, case, value, bound(terms), |g, x| g.upsample(x[0], &factors, mode));
    }

    pub fn embedding(device: &dyn Device, case: Case<'_>) {
        // A row of the table collects at most as many terms as there are indices.
        let indices = case.get("in.indices").words.len();
        // Inputs come in order of their names: indices, table.
        check_simple(device, case, bound(0), bound(indices), |g, x| g.embedding(x[1], x[0]));
    }

    pub fn attention(device: &dyn Device, case: Case<'_>) {
        let (q, k) = (&case.get("in.q").shape, &case.get("in.k").shape);
        let ((l, h, d), (s, g)) = ((q[1], q[2], q[3]), (k[1], k[2]));
        let mut op = Attention::new(d);
        if case.flag("causal") {
            op = op.causal();
        }
        // Sums over the head and the keys, or all queries of a group's heads.
        let value = bound(d + s) + functions(4.0);
        let gradient = bound(2 * d + s + l * h / g) + functions(4.0);
        // Inputs come in order of their names: k, mask, q, v.
        check_simple(device, case, value, gradient, |graph, x| match *x {
            [k, q, v] => graph.attention(q, k, v, None, op.clone()),
            [k, mask, q, v] => graph.attention(q, k, v, Some(mask), op.clone()),
            _ => panic!("three inputs or four"),
        });
    }

    pub fn rope(device: &dyn Device, case: Case<'_>) {
        let op = Rope::new(case.number("base") as f32);
        let close = bound(2) + functions(4.0);
        check_simple(device, case, close, close, |g, x| g.rope(x[0], op.clone()));
    }

    pub fn cross_entropy(device: &dyn Device, case: Case<'_>) {
        let label = case.label(&device.description().name);
        let op = CrossEntropy {
            ignore_index: case.number("ignore_index") as i32,
            label_smoothing: case.number("label_smoothing") as f32,
        };
        let classes = case.get("in.logits").shape[1];
        // Sums over the classes of exponentials, or of the logits themselves.
        // The gradient's e^(logit − L) makes the rounding of the saved L, half
        // a unit of its last place, a relative error.
        let largest = case.floats("in.logits").into_iter().fold(0.0, |a: f32, x| a.max(x.abs()));
        let close = bound(classes) + functions(FUNCTION_ULPS + f64::from(largest) / 2.0);
        let (losses, weights) = (case.floats("out.loss"), case.floats("out.weight"));
        let total: f32 = weights.iter().sum();
        let upstream: Vec<f32> = weights.iter().map(|w| w / total.max(1.0)).collect();
        // Inputs come in order of their names: labels, logits.
        let result = evaluate(device, &case.inputs(), Given::Inputs, &[&upstream], |g, x| {
            let loss = g.cross_entropy(x[1], x[0], op.clone())?;
            Ok(vec![loss.per_item, loss.weight])
        });
        let result = result.unwrap_or_else(|e| panic!("{label}: {e}"));
        check(&format!("{label}, loss"), &result.outputs[0], &losses, close);
        check(&format!("{label}, weight"), &result.outputs[1], &weights, bound(0));
        let gradient = result.gradients[1].as_ref().expect("there is one");
        let expected = case.floats("grad.logits");
        check(&format!("{label}, gradient"), gradient, &expected, close);

        // The mean and its gradient as a training step has them.
        let model = LogitsModel { logits: case.get("in.logits").clone(), op };
        let mut trainer = trainer(&model, &plain_sgd(), device, 1, None).expect("plans");
        let batch = Batch::from([("labels", case.get("in.labels").bytes())]);
        let gradients = gradients_by_step(&mut trainer, &batch);
        let rows = losses.len();
        let mean = [trainer.loss().expect("there is one")];
        check(&format!("{label}, mean"), &mean, &case.floats("out.mean"), close + bound(rows));
        check(&format!("{label}, step"), &gradients["logits"], &expected, close + bound(2));
    }

    pub fn losses(device: &dyn Device, case: Case<'_>) {
        // Means over an item's elements or sums over its classes.
        let terms: usize = case.get("in.x").shape[1..].iter().product();
        let close = bound(terms) + functions(FUNCTION_ULPS);
        let loss = case.text("loss");
        let (inputs, upstream) = (case.inputs(), case.floats("grad_out.y"));
        let result = evaluate(device, &inputs, Given::Inputs, &[&upstream], |g, x| {
            let loss = match loss {
                "mean_squared_error" => g.mean_squared_error(x[0], x[1])?,
                "binary_cross_entropy" => g.binary_cross_entropy_with_logits(x[0], x[1])?,
                "dice" => g.dice_loss(x[0], x[1], 1.0)?,
                "soft_cross_entropy" => g.soft_cross_entropy(x[0], x[1])?,
                other => panic!("no test for the loss {other}"),
            };
            Ok(vec![loss.per_item, loss.weight])
        });
        let label = case.label(&device.description().name);
        let result = result.unwrap_or_else(|e| panic!("{label}: {e}"));
        check(&label, &result.outputs[0], &case.floats("out.y"), close);
        assert!(result.outputs[1].iter().all(|w| *w == 1.0), "{label}: weights");
        for (input, gradient) in inputs.iter().zip(&result.gradients) {
            let label = format!("{label}, gradient of {}", input.name);
            let gradient = gradient.as_ref().unwrap_or_else(|| panic!("{label}: there is none"));
            check(&label, gradient, &case.floats(&format!("grad.{}", input.name)), close);
        }
    }

    pub fn norms(device: &dyn Device, case: Case<'_>) {
        let (kind, groups) = (case.text("kind").to_string(), case.number("groups") as usize);
        let shape = case.get("in.x").shape.clone();
        // Moments sum up at most all elements, and so do the gradients of the
        // scale; each of those sums feeds one more.
        let close = 2.0 * bound(shape.iter().product()) + functions(FUNCTION_ULPS);
        // Inputs come in order of their names: bias, weight, x.
        let norm = |g: &mut Graph, x: &[ValueId]| -> Result<ValueId> {
            let affine = Affine { weight: Some(x[1]), bias: Some(x[0]) };
            match kind.as_str() {
                "layer_norm" => g.layer_norm(x[2], affine, 1e-5),
                "rms_norm" => g.rms_norm(x[2], affine, 1e-5),
                "group_norm" => g.group_norm(x[2], groups, affine, 1e-5),
                "batch_norm" => {
                    let channels = g.shape(x[2])[1];
                    let running = Running {
                        mean: g.state("running_mean", &[channels], Init::Zeros)?,
                        variance: g.state("running_var", &[channels], Init::Constant(1.0))?,
                        momentum: 0.1,
                    };
                    g.batch_norm(x[2], affine, running, 1e-5)
                }
                other => panic!("no test for {other}"),
            }
        };
        check_simple(device, case, close, close, norm);
        if kind != "batch_norm" {
            return;
        }
        let label = case.label(&device.description().name);
        let model = NormModel { case };
        let mut trainer = trainer(&model, &plain_sgd(), device, shape[0], None).expect("plans");
        let batch = Batch::from([("x", case.get("in.x").bytes())]);
        trainer.train_step(&batch, 0.0).expect("a step runs");
        let mut running: Vec<Tensor> = Vec::new();
        for name in ["running_mean", "running_var"] {
            let got = trainer.read_f32(name).expect("is a state");
            check(&format!("{label}, {name}"), &got, &case.floats(&format!("out.{name}")), close);
            let words = got.into_iter().map(f32::to_bits).collect();
            running.push(Tensor { name: name.into(), words, ..case.get("in.bias").clone() });
        }
        running.splice(0..0, case.inputs());
        let result = evaluate(device, &running, Given::Inputs, &[], |g, x| {
            g.mode = plimsoll::Mode::Evaluate;
            let affine = Affine { weight: Some(x[1]), bias: Some(x[0]) };
            let running = Running { mean: x[3], variance: x[4], momentum: 0.1 };
            Ok(vec![g.batch_norm(x[2], affine, running, 1e-5)?])
        });
        let result = result.unwrap_or_else(|e| panic!("{label}: {e}"));
        check(&label, &result.outputs[0], &case.floats("out.evaluated"), close);
    }

    pub fn clipping(device: &dyn Device, case: Case<'_>) {
        let label = case.label(&device.description().name);
        let recipe = plain_sgd().clip_norm(case.number("norm") as f32);
        let model = InnerProducts(case.inputs());
        let elements: usize = model.0.iter().map(|t| t.words.len()).sum();
        for k in [1, 2] {
            // Two items with the same gradient: their mean is that gradient.
            let mut trainer = trainer(&model, &recipe, device, k, Some(k)).expect("plans");
            let names: Vec<String> = model.0.iter().map(|t| format!("grad.{}", t.name)).collect();
            let bytes: Vec<Vec<u8>> =
                names.iter().map(|n| case.get(&format!("{n}.0")).bytes().repeat(k)).collect();
            let batch = names.iter().zip(&bytes).map(|(n, b)| (n.as_str(), b.as_slice()));
            trainer.train_step(&batch.collect(), case.number("lr") as f32).expect("a step runs");
            for t in &model.0 {
                let label = format!("{label}, {} of {k} micro-batches", t.name);
                let got = trainer.read_f32(&t.name).expect("a weight is read");
                let expected = case.floats(&format!("out.{}.0", t.name));
                check(&label, &got, &expected, functions(FUNCTION_ULPS) + bound(elements));
            }
        }
    }

    pub fn linear_cross_entropy(device: &dyn Device, case: Case<'_>) {
        let loss = CrossEntropy {
            ignore_index: case.number("ignore_index") as i32,
            label_smoothing: case.number("label_smoothing") as f32,
        };
        let [classes, width] = case.get("in.weight").shape[..] else { panic!("a matrix") };
        let rows = case.get("in.labels").shape[0];
        // Two rows of logits at a time.
        let op = LinearCrossEntropy { loss, chunk_bytes: (8 * classes) as u64 };
        // A logit's error is a relative error of its exponential.
        let close = functions(FUNCTION_ULPS) + bound(classes + rows + width * width);
        // Inputs come in order of their names: bias, hidden, labels, weight.
        let bias = case.names("in.").contains(&"bias");
        check_simple(device, case, close, close, |g, x| {
            let mut inputs = vec![x[x.len() - 3], x[x.len() - 1], x[x.len() - 2]];
            inputs.extend(bias.then_some(x[0]));
            Ok(g.emit(Op::LinearCrossEntropy(op.clone()), &inputs)?[0])
        });
    }

    pub fn optimizers(device: &dyn Device, case: Case<'_>) {
        let label = case.label(&device.description().name);
        let number = |key: &str| case.number(key) as f32;
        let name = case.text("optimizer");
        let recipe: Recipe = match name {
            "sgd" => Sgd {
                momentum: number("momentum"),
                nesterov: case.flag("nesterov"),
                weight_decay: number("weight_decay"),
            }
            .into(),
            "adam" | "adamw" => Adam {
                beta1: number("beta1"),
                beta2: number("beta2"),
                epsilon: number("epsilon"),
                weight_decay: number("weight_decay"),
                decoupled: name == "adamw",
            }
            .into(),
            other => panic!("no test for the optimizer {other}"),
        };
        let model = InnerProducts(case.inputs());
        let mut trainer = trainer(&model, &recipe, device, 1, None).expect("plans");
        for step in 0..5 {
            let names: Vec<String> = model.0.iter().map(|t| format!("grad.{}", t.name)).collect();
            let batch = names.iter().map(|n| {
                let gradient = case.get(&format!("{n}.{step}"));
                (n.as_str(), gradient.bytes())
            });
            trainer.train_step(&batch.collect(), number("lr")).expect("a step runs");
            for t in &model.0 {
                let expected = case.floats(&format!("out.{}.{step}", t.name));
                let label = format!("{label}, {} after step {step}", t.name);
                let got = trainer.read_f32(&t.name).expect("a weight is read");
                // Each step adds one term to the weight, itself a short formula.
                check(&label, &got, &expected, functions(FUNCTION_ULPS) + bound(step + 1));
            }
        }
    }

    pub fn mlp(device: &dyn Device, case: Case<'_>) {
        let label = case.label(&device.description().name);
        let sizes = case.sizes("sizes");
        let rows = case.get("in.x").shape[0];
        // Sums forward over every width, backward over all but the first, in
        // the softmax over the last, at the end over the rows.
        let chain = 2 * sizes.iter().sum::<usize>() + rows;
        let close = bound(chain) + functions(FUNCTION_ULPS);
        let model = GoldenMlp { case, layers: sizes.len() - 1 };
        let batch = Batch::from([
            ("x", case.get("in.x").bytes()),
            ("labels", case.get("in.labels").bytes()),
        ]);
        for k in [1, 3] {
            let label = format!("{label}, {k} micro-batches");
            let mut trainer = trainer(&model, &plain_sgd(), device, rows, Some(k)).expect("plans");
            let gradients = gradients_by_step(&mut trainer, &batch);
            let mean = [trainer.loss().expect("there is one")];
            check(&format!("{label}, loss"), &mean, &case.floats("out.loss"), close);
            let names = case.names("grad.");
            assert_eq!(names, gradients.keys().collect::<Vec<_>>(), "{label}");
            for name in names {
                let expected = case.floats(&format!("grad.{name}"));
                let label = format!("{label}, gradient of {name}");
                check(&label, &gradients[name], &expected, close);
            }
        }
    }
}

fn plain_sgd() -> Recipe {
    Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }.into()
}

/// Cross-entropy of logits that are themselves the weights; all rows are one
/// item of the batch.
struct LogitsModel {
    logits: Tensor,
    op: CrossEntropy,
}

impl Model for LogitsModel {
    fn name(&self) -> &str {
        "logits"
    }

    fn forward(&self, g: &mut Graph, _batch: usize) -> Result<Loss> {
        let (shape, words) = (&self.logits.shape, self.logits.words.clone());
        let logits = g.parameter("logits", shape, Init::Words(words))?;
        let labels = g.input("labels", &shape[..1], DType::I32)?;
        g.cross_entropy(logits, labels, self.op.clone())
    }
}

/// Σ ⟨weight, input `grad.<weight>`⟩: the input is the weight's gradient.
struct InnerProducts(Vec<Tensor>);

impl Model for InnerProducts {
    fn name(&self) -> &str {
        "inner_products"
    }

    fn forward(&self, g: &mut Graph, _batch: usize) -> Result<Loss> {
        let mut sums = Vec::new();
        for t in &self.0 {
            let weight = g.parameter(&t.name, &t.shape, Init::Words(t.words.clone()))?;
            let gradient = g.input(&format!("grad.{}", t.name), &t.shape, DType::F32)?;
            let product = g.map(&[weight, gradient], |x| &x[0] * &x[1])?;
            let axes: Vec<usize> = (0..t.shape.len()).collect();
            sums.push(g.sum(product, &axes)?);
        }
        let total = g.map(&sums, |x| x[1..].iter().fold(x[0].clone(), |a, b| a + b))?;
        let one = g.map(&[], |_| E::constant(1.0))?;
        Ok(Loss { per_item: g.reshape(total, &[1])?, weight: g.reshape(one, &[1])?, correct: None })
    }
}

/// A batch norm whose outputs are the losses.
struct NormModel<'a> {
    case: Case<'a>,
}

impl Model for NormModel<'_> {
    fn name(&self) -> &str {
        "norm"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let mut shape = self.case.get("in.x").shape.clone();
        shape[0] = batch;
        let x = g.input("x", &shape, DType::F32)?;
        let running = Running {
            mean: g.state("running_mean", &shape[1..2], Init::Zeros)?,
            variance: g.state("running_var", &shape[1..2], Init::Constant(1.0))?,
            momentum: 0.1,
        };
        let y = g.batch_norm(x, Affine::default(), running, 1e-5)?;
        let axes: Vec<usize> = (1..shape.len()).collect();
        let mean = g.mean(y, &axes)?;
        g.unweighted(mean)
    }
}

/// The perceptron of the golden file, with its weights.
struct GoldenMlp<'a> {
    case: Case<'a>,
    layers: usize,
}

impl Model for GoldenMlp<'_> {
    fn name(&self) -> &str {
        "golden_mlp"
    }

    fn forward(&self, g: &mut Graph, batch: usize) -> Result<Loss> {
        let width = self.case.get("in.x").shape[1];
        let mut x = g.input("x", &[batch, width], DType::F32)?;
        let labels = g.input("labels", &[batch], DType::I32)?;
        for layer in 1..=self.layers {
            let weight = |kind: &str, g: &mut Graph| {
                let name = format!("fc{layer}.{kind}");
                let t = self.case.get(&format!("in.{name}"));
                g.parameter(&name, &t.shape, Init::Words(t.words.clone()))
            };
            let (w, b) = (weight("weight", g)?, weight("bias", g)?);
            let product = g.matmul(x, w, false, true)?;
            x = g.map(&[product, b], |x| &x[0] + &x[1])?;
            if layer < self.layers {
                x = g.relu(x)?;
            }
        }
        g.cross_entropy(x, labels, CrossEntropy::default())
    }
}
