//! Speed of the matmul kernels: `cargo bench -p plimsoll-wgpu --bench matmul`.
#![allow(missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use plimsoll_core::ops::matmul::Variant;
use plimsoll_core::ops::{LowerContext, Matmul, Op, Operand, TensorType};
use support::{Gpu, Step, gpus};

fn product(gpu: &Gpu, variant: Variant, [m, k, n]: [usize; 3], ta: bool, tb: bool) -> Vec<Step> {
    let op = Op::Matmul(Matmul::new(ta, tb));
    let types = [
        TensorType::f32(if ta { [k, m] } else { [m, k] }),
        TensorType::f32(if tb { [n, k] } else { [k, n] }),
        TensorType::f32([m, n]),
    ];
    let operands: Vec<Operand> = types
        .iter()
        .enumerate()
        .map(|(storage, tensor)| Operand { storage, tensor: tensor.clone() })
        .collect();
    let storages: Vec<wgpu::Buffer> =
        types.iter().map(|t| gpu.storage(&vec![1f32.to_bits(); t.numel()])).collect();
    let launches = op.lower(&LowerContext {
        capabilities: &gpu.capabilities,
        inputs: &operands[..2],
        outputs: &operands[2..],
        workspace: None,
        matmul_variant: Some(variant),
    });
    launches.iter().map(|l| gpu.step(l, &storages)).collect()
}

/// Processor time of this process: other processes on the machine do not
/// disturb it. Linux only; 0 elsewhere.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let shapes = [
        ([256, 784, 512], false, false),
        ([256, 784, 512], false, true),
        ([784, 256, 512], true, false),
        ([512, 512, 512], false, false),
        ([256, 512, 10], false, true),
    ];
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    for gpu in gpus() {
        for (sizes, ta, tb) in shapes {
            for variant in Variant::ALL.into_iter().filter(|v| v.supported(&gpu.capabilities)) {
                let steps = product(gpu, variant, sizes, ta, tb);
                let start = Instant::now();
                gpu.run(&steps, 1);
                let first = start.elapsed().as_secs_f64();
                let start = Instant::now();
                gpu.run(&steps, 2);
                let times = (0.5 / (start.elapsed().as_secs_f64() / 2.0)).clamp(2.0, 500.0);
                let times = times as usize;
                let (start, processor) = (Instant::now(), processor_seconds());
                gpu.run(&steps, times);
                let wall = start.elapsed().as_secs_f64() / times as f64;
                let processor = (processor_seconds() - processor) / times as f64 / cores;
                let flops = 2.0 * sizes.iter().product::<usize>() as f64;
                println!(
                    "{} {}x{}x{} {}{} {variant:?}: {:.1} GFLOP/s, {:.1} if all cores were free; first run {:.0} ms",
                    gpu.name,
                    sizes[0],
                    sizes[1],
                    sizes[2],
                    if ta { "t" } else { "n" },
                    if tb { "t" } else { "n" },
                    flops / wall / 1e9,
                    flops / processor / 1e9,
                    first * 1e3,
                );
            }
        }
    }
}
