//! `conv` and its gradients: columns of windows in workspace, products by the
//! `gemm` crate, and plain loops where groups have hardly any channels.

mod columns;
mod direct;
mod input_gradient;
mod weight_gradient;

use std::ops::Range;

pub use input_gradient::Task as InputGradientTask;
use plimsoll_core::ops::Conv;
use plimsoll_core::ops::convolution::Geometry;
use plimsoll_core::ops::convolution_tiles::Span;
use plimsoll_core::plan::{PlannedNode, types};
use rayon::prelude::*;
pub use weight_gradient::Task as WeightGradientTask;

use super::matmul::{Epilogue, Product};
use super::scratch::Scratch;
use crate::arena::Memory;

/// The forward pass.
pub struct Task {
    geometry: Geometry,
    x: Memory,
    weight: Memory,
    output: Memory,
    workspace: Option<Memory>,
    epilogue: Option<Epilogue>,
}

impl Task {
    pub fn new(
        op: &Conv,
        node: &PlannedNode,
        inputs: &[Memory],
        output: Memory,
        workspace: Option<Memory>,
    ) -> Task {
        let types = types(&node.inputs);
        Task {
            geometry: op.geometry(&types),
            x: inputs[0],
            weight: inputs[1],
            output,
            workspace,
            epilogue: Epilogue::new(&op.epilogue, node, inputs, output),
        }
    }

    pub fn run(&self, threads: usize) {
        if self.geometry.is_direct() {
            direct::forward(&self.geometry, self.x, self.weight, self.output);
        } else {
            self.products(threads);
        }
        if let Some(epilogue) = &self.epilogue {
            epilogue.run(self.output);
        }
    }

    fn products(&self, threads: usize) {
        let g = &self.geometry;
        let span = g.forward_span();
        let parts: Vec<Part> = (0..g.groups).flat_map(|group| parts(g, span, group)).collect();
        let scratch = Scratch {
            memory: self.workspace,
            first: 0,
            numel: g.scratch_numel(span, g.in_channels * g.taps(), g.is_pointwise()),
        };
        // One part alone is computed by all threads; more parts one by each.
        let threads = if parts.len() == 1 { threads } else { 1 };
        parts.par_iter().for_each(|part| self.part(part, span, &scratch, threads));
    }

    fn part(&self, part: &Part, span: Span, scratch: &Scratch, threads: usize) {
        let g = &self.geometry;
        let (m, k, n) = (g.out_channels, g.in_channels * g.taps(), part.columns());
        let (from, to) = (g.input_numel(), g.output_numel());
        // SAFETY: nobody writes to x; scratch memory is this thread's.
        let (x, scratch) = unsafe { (self.x.read::<f32>(), scratch.take()) };
        let first_plane = |item: usize| (item * g.groups + part.group) * g.in_channels;
        let product =
            Product { m, n, k, transpose_a: false, transpose_b: false, accumulate: false };
        let one = part.items.len() == 1;
        let (b, b_stride, scratch) = if one && g.is_pointwise() {
            (&x[first_plane(part.items.start) * from + part.windows.start..], to, scratch)
        } else {
            let (columns, rest) = scratch.split_at_mut(k * span.columns());
            for (i, item) in part.items.clone().enumerate() {
                let input = &x[first_plane(item) * from..][..g.in_channels * from];
                let columns = &mut columns[i * to..];
                columns::gather(g, input, g.in_channels, &part.windows, columns, n);
            }
            (&*columns, n, rest)
        };
        let plane = |item: usize| (item * g.groups + part.group) * m * to;
        // SAFETY: the weight is [groups · m, k]; each part writes its own
        // windows of the output, [m, n] with rows `to` apart, or scratch memory.
        unsafe {
            let a = self.weight.as_ptr::<f32>().add(part.group * m * k);
            let (out, out_stride) = if one {
                let at = plane(part.items.start) + part.windows.start;
                (self.output.as_ptr::<f32>().add(at), to)
            } else {
                (scratch.as_mut_ptr(), n)
            };
            product.run_strided(threads, (a, k), (b.as_ptr(), b_stride), (out, out_stride));
        }
        if !one {
            for (i, item) in part.items.clone().enumerate() {
                for row in 0..m {
                    // SAFETY: as above.
                    let out = unsafe { self.output.write_part::<f32>(plane(item) + row * to, to) };
                    out.copy_from_slice(&scratch[row * n + i * to..][..to]);
                }
            }
        }
    }
}

/// A part of a group's windows: some of one item's, or all of several items'.
struct Part {
    group: usize,
    items: Range<usize>,
    windows: Range<usize>,
}

impl Part {
    fn columns(&self) -> usize {
        self.items.len() * self.windows.len()
    }
}

/// The parts of a group's windows.
fn parts(g: &Geometry, span: Span, group: usize) -> impl Iterator<Item = Part> {
    let (batch, count) = (g.batch, g.output_numel());
    (0..batch).step_by(span.items).flat_map(move |item| {
        (0..count).step_by(span.windows).map(move |window| Part {
            group,
            items: item..(item + span.items).min(batch),
            windows: window..(window + span.windows).min(count),
        })
    })
}

/// Copies the output's rows of one group, of a part's items, side by side:
/// [m, items · windows].
fn side_by_side(g: &Geometry, part: &Part, from: &[f32], to: &mut [f32]) {
    let (m, plane, n) = (g.out_channels, g.output_numel(), part.columns());
    for (i, item) in part.items.clone().enumerate() {
        let first = (item * g.groups + part.group) * m;
        for row in 0..m {
            let from = &from[(first + row) * plane..][..plane];
            to[row * n + i * plane..][..plane].copy_from_slice(from);
        }
    }
}
