//! Windows as columns of a matrix, and back.
//!
//! Row (channel, tap) of the matrix holds, for each window of a part, the
//! element that the tap meets. Along a line of the output these are elements of
//! one line of the input, a stride apart.

use std::ops::Range;

use plimsoll_core::ops::convolution::Geometry;

/// Calls `f` for each line of the output that has windows in `windows`.
fn lines(g: &Geometry, windows: &Range<usize>, tap: usize, mut f: impl FnMut(Line)) {
    let [_, height, width] = g.output;
    let [_, kh, kw] = g.kernel;
    let [kz, ky, kx] = [tap / (kh * kw), tap / kw % kh, tap % kw];
    let met = met_windows(g, kx);
    let mut at = windows.start;
    while at < windows.end {
        let line = at / width;
        let end = ((line + 1) * width).min(windows.end);
        let (ox, columns) = (at - line * width, end - at);
        let (y, z) = (g.met(1, line % height, ky), g.met(0, line / height, kz));
        // Of this part of the line, the windows whose tap meets an element.
        let inside = match y.and(z) {
            None => 0..0,
            Some(_) => {
                let start = met.start.clamp(ox, ox + columns) - ox;
                start..(met.end.clamp(ox, ox + columns) - ox).max(start)
            }
        };
        let first = match (z, y, inside.is_empty()) {
            (Some(z), Some(y), false) => {
                let x = (ox + inside.start) * g.stride[2] + kx * g.dilation[2] - g.padding[2];
                (z * g.input[1] + y) * g.input[2] + x
            }
            _ => 0,
        };
        f(Line { column: at - windows.start, columns, inside, first });
        at = end;
    }
}

/// The windows along the last dimension whose tap `k` meets an element.
fn met_windows(g: &Geometry, k: usize) -> Range<usize> {
    let (s, at) = (g.stride[2], k * g.dilation[2]);
    let start = g.padding[2].saturating_sub(at).div_ceil(s);
    let end = (g.input[2] + g.padding[2]).saturating_sub(at).div_ceil(s);
    start..end.max(start)
}

/// A part of a line of the output, for one tap.
struct Line {
    /// Its first column in the part.
    column: usize,
    /// Its columns.
    columns: usize,
    /// Those whose tap meets an element; the others meet padding.
    inside: Range<usize>,
    /// The element of the input's plane that the first of these meets.
    first: usize,
}

/// The lines of a tap, which are the same for every channel.
#[derive(Default)]
struct Tap {
    lines: Vec<Line>,
    /// Columns that meet padding.
    outside: Vec<usize>,
    /// Where columns and elements advance alike: the columns from the first to
    /// the last that meet an element, and the element that the first meets.
    run: Option<(Range<usize>, usize)>,
}

impl Tap {
    fn set(&mut self, g: &Geometry, windows: &Range<usize>, tap: usize) {
        self.lines.clear();
        self.outside.clear();
        lines(g, windows, tap, |line| self.lines.push(line));
        for l in &self.lines {
            self.outside.extend(l.column..l.column + l.inside.start);
            self.outside.extend(l.column + l.inside.end..l.column + l.columns);
        }
        let mut met = self.lines.iter().filter(|l| !l.inside.is_empty());
        self.run = met.next().filter(|_| g.stride[2] == 1).and_then(|head| {
            let start = head.column + head.inside.start;
            let mut end = head.column + head.inside.end;
            for l in met {
                if l.first.checked_sub(head.first) != Some(l.column + l.inside.start - start) {
                    return None;
                }
                end = l.column + l.inside.end;
            }
            Some((start..end, head.first))
        });
    }
}

/// Writes the rows of `channels` (planes of `input`, which starts at the first
/// of them) for the windows of one item to `columns`, whose rows are `stride`
/// elements apart.
pub fn gather(
    g: &Geometry,
    input: &[f32],
    channels: usize,
    windows: &Range<usize>,
    columns: &mut [f32],
    stride: usize,
) {
    let (taps, plane, step) = (g.taps(), g.input_numel(), g.stride[2]);
    let mut of = Tap::default();
    for tap in 0..taps {
        of.set(g, windows, tap);
        for c in 0..channels {
            let input = &input[c * plane..][..plane];
            let row = &mut columns[(c * taps + tap) * stride..][..windows.len()];
            match &of.run {
                Some((run, first)) => {
                    row[run.clone()].copy_from_slice(&input[*first..][..run.len()]);
                }
                None => {
                    for l in &of.lines {
                        let out = &mut row[l.column..][..l.columns][l.inside.clone()];
                        let from = &input[l.first..];
                        match step {
                            1 => out.copy_from_slice(&from[..out.len()]),
                            2 => out.iter_mut().zip(from.chunks(2)).for_each(|(o, x)| *o = x[0]),
                            _ => {
                                out.iter_mut().zip(from.chunks(step)).for_each(|(o, x)| *o = x[0]);
                            }
                        }
                    }
                }
            }
            // One by one: there are few in each line.
            of.outside.iter().for_each(|i| row[*i] = 0.0);
        }
    }
}

/// Adds the rows of `columns` to the elements that they stand for: the reverse
/// of [`gather`]. Columns that stand for padding become 0.
pub fn scatter(
    g: &Geometry,
    columns: &mut [f32],
    stride: usize,
    channels: usize,
    windows: &Range<usize>,
    input: &mut [f32],
) {
    let (taps, plane, step) = (g.taps(), g.input_numel(), g.stride[2]);
    let mut of = Tap::default();
    for tap in 0..taps {
        of.set(g, windows, tap);
        for c in 0..channels {
            let input = &mut input[c * plane..][..plane];
            let row = &mut columns[(c * taps + tap) * stride..][..windows.len()];
            if let Some((run, first)) = &of.run {
                of.outside.iter().for_each(|i| row[*i] = 0.0);
                let to = &mut input[*first..][..run.len()];
                to.iter_mut().zip(&row[run.clone()]).for_each(|(o, x)| *o += x);
                continue;
            }
            for l in &of.lines {
                let from = &row[l.column..][..l.columns][l.inside.clone()];
                let to = &mut input[l.first..];
                match step {
                    1 => to.iter_mut().zip(from).for_each(|(o, x)| *o += x),
                    2 => to.chunks_mut(2).zip(from).for_each(|(o, x)| o[0] += x),
                    _ => to.chunks_mut(step).zip(from).for_each(|(o, x)| o[0] += x),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::ops::Convolution;

    use super::*;

    /// Every element of the matrix, one by one.
    fn plain(g: &Geometry, input: &[f32], channels: usize) -> Vec<f32> {
        let split = |i: usize, [_, h, w]: [usize; 3]| [i / (h * w), i / w % h, i % w];
        let mut out = Vec::new();
        for c in 0..channels {
            for tap in 0..g.taps() {
                for o in 0..g.output_numel() {
                    let (at, k) = (split(o, g.output), split(tap, g.kernel));
                    let met = |d: usize| g.met(d, at[d], k[d]);
                    out.push(match (met(0), met(1), met(2)) {
                        (Some(z), Some(y), Some(x)) => {
                            let i = (z * g.input[1] + y) * g.input[2] + x;
                            input[c * g.input_numel() + i]
                        }
                        _ => 0.0,
                    });
                }
            }
        }
        out
    }

    #[test]
    fn columns_are_the_windows_in_any_parts() {
        for (input, kernel, c) in [
            (vec![1, 2, 5, 7], [3, 2], Convolution::new(2).padding(&[1, 1])),
            (vec![1, 2, 6, 9], [2, 4], Convolution::new(2).stride(&[2, 3]).padding(&[3, 5])),
            (vec![1, 2, 9, 8], [3, 3], Convolution::new(2).stride(&[1, 2]).dilation(&[2, 3])),
            (vec![1, 2, 2, 2], [5, 5], Convolution::new(2).padding(&[4, 4])),
        ] {
            let weight = [1, 2, kernel[0], kernel[1]];
            let g = c.geometry("conv", &input, &weight).expect("fits");
            let numel = 2 * g.input_numel();
            let x: Vec<f32> = (0..numel).map(|i| i as f32 + 1.0).collect();
            let expected = plain(&g, &x, 2);
            let count = g.output_numel();
            for part in [1, 3, count] {
                let mut sums = vec![0.0; numel];
                for start in (0..count).step_by(part) {
                    let windows = start..(start + part).min(count);
                    let mut columns = vec![f32::NAN; 2 * g.taps() * part];
                    gather(&g, &x, 2, &windows, &mut columns, part);
                    for (row, expected) in expected.chunks(count).enumerate() {
                        let row = &columns[row * part..][..windows.len()];
                        assert_eq!(row, &expected[windows.clone()], "{g:?}");
                    }
                    columns.iter_mut().for_each(|x| *x = 1.0);
                    scatter(&g, &mut columns, part, 2, &windows, &mut sums);
                }
                // Each element is met as often as it stands in the matrix.
                for (i, sum) in sums.iter().enumerate() {
                    let times = expected.iter().filter(|e| **e == i as f32 + 1.0).count();
                    assert_eq!(*sum, times as f32);
                }
            }
        }
    }
}
