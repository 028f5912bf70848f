//! Convolutions whose groups have hardly any channels (depthwise ones): tap by
//! tap along the lines of planes, without a matrix.

use std::ops::Range;

use plimsoll_core::ops::convolution::Geometry;
use rayon::prelude::*;

use crate::arena::Memory;

/// Elements that a sum over a line is spread over, so that it is vectorised.
const LANES: usize = 8;

/// For a tap: the windows along the last dimension that meet an element, and
/// the first element met.
struct Along {
    windows: Range<usize>,
    first: usize,
}

/// Calls `f(tap, first output of the line's windows, windows, first input)` for
/// all lines of the output, as positions in the planes.
fn walk(g: &Geometry, mut f: impl FnMut(usize, usize, usize, usize)) {
    let [depth, height, width] = g.output;
    let [kd, kh, kw] = g.kernel;
    let along: Vec<Along> = (0..kw)
        .map(|k| {
            let met: Vec<usize> = (0..width).filter(|o| g.met(2, *o, k).is_some()).collect();
            match (met.first(), met.last()) {
                (Some(a), Some(b)) => {
                    Along { windows: *a..b + 1, first: g.met(2, *a, k).expect("is met") }
                }
                _ => Along { windows: 0..0, first: 0 },
            }
        })
        .collect();
    for oz in 0..depth {
        for kz in 0..kd {
            let Some(z) = g.met(0, oz, kz) else { continue };
            for oy in 0..height {
                for ky in 0..kh {
                    let Some(y) = g.met(1, oy, ky) else { continue };
                    for (kx, Along { windows, first }) in along.iter().enumerate() {
                        if windows.is_empty() {
                            continue;
                        }
                        let out = (oz * height + oy) * width + windows.start;
                        let input = (z * g.input[1] + y) * g.input[2] + first;
                        f((kz * kh + ky) * kw + kx, out, windows.len(), input);
                    }
                }
            }
        }
    }
}

/// The output, a plane at a time.
pub fn forward(g: &Geometry, x: Memory, weight: Memory, output: Memory) {
    let (ci, co, taps) = (g.in_channels, g.out_channels, g.taps());
    let (from, to, step) = (g.input_numel(), g.output_numel(), g.stride[2]);
    // SAFETY: nobody writes to these.
    let (x, weight) = unsafe { (x.read::<f32>(), weight.read::<f32>()) };
    (0..g.batch * g.groups * co).into_par_iter().for_each(|plane| {
        let (item, m) = (plane / (g.groups * co), plane % (g.groups * co));
        let first = (item * g.groups + m / co) * ci;
        // SAFETY: each plane is written by one piece.
        let out = unsafe { output.write_part::<f32>(plane * to, to) };
        out.fill(0.0);
        for c in 0..ci {
            let x = &x[(first + c) * from..][..from];
            let weight = &weight[(m * ci + c) * taps..][..taps];
            walk(g, |tap, o, windows, i| {
                let (w, out) = (weight[tap], &mut out[o..o + windows]);
                match step {
                    1 => out.iter_mut().zip(&x[i..]).for_each(|(o, x)| *o += w * x),
                    _ => out.iter_mut().zip(x[i..].chunks(step)).for_each(|(o, x)| *o += w * x[0]),
                }
            });
        }
    });
}

/// The input's gradient, a plane at a time.
pub fn input_gradient(g: &Geometry, weight: Memory, gradient: Memory, output: Memory) {
    let (ci, co, taps) = (g.in_channels, g.out_channels, g.taps());
    let (plane_numel, to, step) = (g.input_numel(), g.output_numel(), g.stride[2]);
    // SAFETY: nobody writes to these.
    let (weight, gradient) = unsafe { (weight.read::<f32>(), gradient.read::<f32>()) };
    (0..g.batch * g.groups * ci).into_par_iter().for_each(|plane| {
        let (item, channel) = (plane / (g.groups * ci), plane % (g.groups * ci));
        let (group, c) = (channel / ci, channel % ci);
        // SAFETY: each plane is written by one piece.
        let out = unsafe { output.write_part::<f32>(plane * plane_numel, plane_numel) };
        out.fill(0.0);
        for m in group * co..(group + 1) * co {
            let gradient = &gradient[(item * g.groups * co + m) * to..][..to];
            let weight = &weight[(m * ci + c) * taps..][..taps];
            walk(g, |tap, o, windows, i| {
                let (w, from) = (weight[tap], &gradient[o..o + windows]);
                match step {
                    1 => out[i..].iter_mut().zip(from).for_each(|(o, x)| *o += w * x),
                    _ => out[i..].chunks_mut(step).zip(from).for_each(|(o, x)| o[0] += w * x),
                }
            });
        }
    });
}

/// The weight's gradient, one output channel's at a time.
pub fn weight_gradient(g: &Geometry, x: Memory, gradient: Memory, output: Memory) {
    let (ci, co, taps) = (g.in_channels, g.out_channels, g.taps());
    let (from, to, step) = (g.input_numel(), g.output_numel(), g.stride[2]);
    // SAFETY: nobody writes to these.
    let (x, gradient) = unsafe { (x.read::<f32>(), gradient.read::<f32>()) };
    (0..g.groups * co).into_par_iter().for_each(|m| {
        // SAFETY: each channel's weights are written by one piece.
        let out = unsafe { output.write_part::<f32>(m * ci * taps, ci * taps) };
        let mut sums = vec![[0.0f32; LANES]; taps];
        for c in 0..ci {
            sums.fill([0.0; LANES]);
            for item in 0..g.batch {
                let x = &x[((item * g.groups + m / co) * ci + c) * from..][..from];
                let gradient = &gradient[(item * g.groups * co + m) * to..][..to];
                walk(g, |tap, o, windows, i| {
                    add_products(&mut sums[tap], &gradient[o..o + windows], &x[i..], step);
                });
            }
            for (out, sums) in out[c * taps..].iter_mut().zip(&sums) {
                *out = sums.iter().sum();
            }
        }
    });
}

/// Adds gradientᵢ · x[i · step] to the lanes in turn.
fn add_products(sums: &mut [f32; LANES], gradient: &[f32], x: &[f32], step: usize) {
    if step == 1 {
        let (whole, rest) = gradient.as_chunks::<LANES>();
        let (x_whole, x_rest) = x[..gradient.len()].as_chunks::<LANES>();
        for (g, x) in whole.iter().zip(x_whole) {
            (0..LANES).for_each(|l| sums[l] += g[l] * x[l]);
        }
        rest.iter().zip(x_rest).enumerate().for_each(|(l, (g, x))| sums[l] += g * x);
        return;
    }
    for (i, (g, x)) in gradient.iter().zip(x.chunks(step)).enumerate() {
        sums[i % LANES] += g * x[0];
    }
}
