//! `conv` and its gradients on the cpu backend: every layer of ResNet-50 at
//! batch 8 against this machine's rate for a plain product of 1024 × 1024 ×
//! 1024, and some layers of other models. `cargo bench --bench conv`.
#![allow(missing_docs)]

mod support;

use plimsoll::ops::{
    ConvInputGradient, ConvWeightGradient, Convolution, Emit, Op, TensorType, ValueId,
};
use plimsoll::{Graph, Mode};
use support::{product, seconds, tensor};

/// How often it occurs, channels, outputs, side of the input, kernel, stride.
const RESNET50: [[usize; 6]; 23] = [
    [1, 3, 64, 224, 7, 2],
    [1, 64, 64, 56, 1, 1],
    [3, 64, 64, 56, 3, 1],
    [4, 64, 256, 56, 1, 1],
    [2, 256, 64, 56, 1, 1],
    [1, 256, 128, 56, 1, 1],
    [1, 128, 128, 56, 3, 2],
    [4, 128, 512, 28, 1, 1],
    [1, 256, 512, 56, 1, 2],
    [3, 512, 128, 28, 1, 1],
    [3, 128, 128, 28, 3, 1],
    [1, 512, 256, 28, 1, 1],
    [1, 256, 256, 28, 3, 2],
    [6, 256, 1024, 14, 1, 1],
    [1, 512, 1024, 28, 1, 2],
    [5, 1024, 256, 14, 1, 1],
    [5, 256, 256, 14, 3, 1],
    [1, 1024, 512, 14, 1, 1],
    [1, 512, 512, 14, 3, 2],
    [3, 512, 2048, 7, 1, 1],
    [1, 1024, 2048, 14, 1, 2],
    [2, 2048, 512, 7, 1, 1],
    [2, 512, 512, 7, 3, 1],
];

/// Seconds of forward pass, input's and weight's gradient, and the flops of
/// each.
fn layer(
    batch: usize,
    [channels, outputs, side, kernel, stride]: [usize; 5],
    groups: usize,
) -> ([f64; 3], f64) {
    let c = Convolution::new(2)
        .stride(&[stride, stride])
        .padding(&[kernel / 2, kernel / 2])
        .groups(groups);
    let input = vec![batch, channels, side, side];
    let weight = [outputs, channels / groups, kernel, kernel];
    let geometry = c.geometry("conv", &input, &weight).expect("fits");
    let output = vec![batch, outputs, geometry.output[1], geometry.output[2]];
    let run = |make: &dyn Fn(&mut Graph) -> ValueId| {
        let mut g = Graph::new(Mode::Train);
        let y = make(&mut g);
        assert!(g.tensor_type(y) != TensorType::f32([1]));
        seconds(g, &[y])
    };
    let forward = run(&|g| {
        let (x, w) = (tensor(g, "x", &input), tensor(g, "w", &weight));
        g.conv(x, w, &c).expect("fine")
    });
    let to_input = run(&|g| {
        let (w, y) = (tensor(g, "w", &weight), tensor(g, "y", &output));
        let op = ConvInputGradient { convolution: c.clone(), input: input.clone() };
        g.emit(Op::ConvInputGradient(op), &[w, y]).expect("fine")[0]
    });
    let to_weight = run(&|g| {
        let (x, y) = (tensor(g, "x", &input), tensor(g, "y", &output));
        let op = ConvWeightGradient { convolution: c.clone(), kernel: vec![kernel, kernel] };
        g.emit(Op::ConvWeightGradient(op), &[x, y]).expect("fine")[0]
    });
    ([forward, to_input, to_weight], geometry.flops() as f64)
}

fn main() {
    let n = 1024;
    let flops = 2.0 * (n * n * n) as f64;
    let peak = flops / product(&[n, n], &[n, n], false, false) / 1e9;
    println!("sgemm of 1024 x 1024 x 1024: {peak:.1} GFLOP/s");
    let show = |name: &str, seconds: [f64; 3], flops: f64| {
        let rates = seconds.map(|s| flops / s / 1e9);
        println!(
            "{name}: forward {:.1} GFLOP/s ({:.2} of sgemm), input's gradient {:.1} ({:.2}), weight's {:.1} ({:.2})",
            rates[0],
            rates[0] / peak,
            rates[1],
            rates[1] / peak,
            rates[2],
            rates[2] / peak,
        );
    };
    let mut total = ([0.0; 3], 0.0);
    for [times, channels, outputs, side, kernel, stride] in RESNET50 {
        let (seconds, flops) = layer(8, [channels, outputs, side, kernel, stride], 1);
        let name = format!("{channels} -> {outputs}, {side}², {kernel}x{kernel}/{stride}");
        show(&name, seconds, flops);
        total.0.iter_mut().zip(seconds).for_each(|(t, s)| *t += times as f64 * s);
        total.1 += times as f64 * flops;
    }
    show("ResNet-50 at batch 8", total.0, total.1);
    for (name, batch, sizes, groups) in [
        ("small image, 1 -> 32", 64, [1, 32, 28, 3, 1], 1),
        ("small image, 32 -> 64", 64, [32, 64, 28, 3, 2], 1),
        ("small image, 64 -> 64", 64, [64, 64, 14, 3, 1], 1),
        ("depthwise, 144", 8, [144, 144, 56, 3, 1], 144),
    ] {
        let (seconds, flops) = layer(batch, sizes, groups);
        show(name, seconds, flops);
    }
}
