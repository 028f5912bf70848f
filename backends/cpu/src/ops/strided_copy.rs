//! `permute`, `slice`, `pad`, `concat`, `split`: strided copies of words.

use plimsoll_core::ops::strided_copy::StridedCopy;
use plimsoll_core::shape;

use super::{PIECE, in_pieces};
use crate::arena::Memory;

/// Copies with their memory: copy `i` goes from input `i` to output `i`, or
/// from or to the only one.
pub struct Task {
    pub copies: Vec<StridedCopy>,
    /// Bytes of the output to clear first.
    pub zero: usize,
    pub inputs: Vec<Memory>,
    pub outputs: Vec<Memory>,
}

impl Task {
    pub fn run(&self) {
        if self.zero > 0 {
            // SAFETY: the output is ours alone.
            let output = unsafe { self.outputs[0].write::<u8>() };
            output[..self.zero].fill(0);
        }
        let of = |all: &[Memory], i: usize| all[i.min(all.len() - 1)];
        for (i, copy) in self.copies.iter().enumerate() {
            run(copy, of(&self.inputs, i), of(&self.outputs, i));
        }
    }
}

fn run(copy: &StridedCopy, from: Memory, to: Memory) {
    let strides = [copy.from_strides.clone(), copy.to_strides.clone()];
    let (sizes, strides) = shape::collapse(&copy.shape, &strides);
    let last = sizes.len() - 1;
    // The farthest elements: all others are within both tensors too.
    let end = |offset: usize, strides: &[usize]| -> usize {
        offset + sizes.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum::<usize>()
    };
    assert!(end(copy.from_offset, &strides[0]) < from.len::<u32>());
    assert!(end(copy.to_offset, &strides[1]) < to.len::<u32>());
    let walk = Walk {
        // SAFETY: the offsets are within the tensors.
        from: unsafe { from.as_ptr::<u32>().add(copy.from_offset) },
        // SAFETY: as above.
        to: unsafe { to.as_ptr::<u32>().add(copy.to_offset) },
        sizes: &sizes,
        strides: [&strides[0], &strides[1]],
    };
    match strides[0].iter().position(|s| *s == 1) {
        // A permutation that moves the last dimension.
        Some(first) if first < last && strides[1][last] == 1 => walk.blocks(first),
        _ => walk.rows(),
    }
}

/// A copy between two places that do not overlap; no two elements go to the
/// same place, and all are within the two tensors.
struct Walk<'a> {
    from: *const u32,
    to: *mut u32,
    sizes: &'a [usize],
    strides: [&'a [usize]; 2],
}

// SAFETY: pieces write to different places, see above.
unsafe impl Sync for Walk<'_> {}

/// Words that a block of a transposed matrix reads and writes at a stretch:
/// cache lines, several of them where the rest of a line is written later.
const BLOCK: [usize; 2] = [16, 64];

impl Walk<'_> {
    /// Offsets at position `i` of the dimensions that `keep` admits.
    fn offsets(&self, mut i: usize, keep: impl Fn(usize) -> bool) -> [usize; 2] {
        let mut offsets = [0; 2];
        for d in (0..self.sizes.len()).rev().filter(|d| keep(*d)) {
            let c = i % self.sizes[d];
            i /= self.sizes[d];
            offsets[0] += c * self.strides[0][d];
            offsets[1] += c * self.strides[1][d];
        }
        offsets
    }

    /// Row by row along the last dimension; rows that follow each other along
    /// the one before it are found without divisions.
    fn rows(&self) {
        let last = self.sizes.len() - 1;
        let inner = self.sizes[last];
        let steps = self.strides.map(|s| s[last]);
        // A scalar's dimensions have been collapsed away.
        let (run, jumps) = match last {
            0 => (1, [0, 0]),
            _ => (self.sizes[last - 1], self.strides.map(|s| s[last - 1])),
        };
        let rows = shape::numel(self.sizes) / inner;
        in_pieces(rows, (PIECE / inner).max(1), |first, count| {
            let mut row = first;
            while row < first + count {
                let within = row % run;
                let now = (run - within).min(first + count - row);
                let [source, target] = self.offsets(row / run, |d| d + 1 < last);
                for r in within..within + now {
                    // SAFETY: within both tensors, see `Walk`.
                    unsafe {
                        let source = self.from.add(source + r * jumps[0]);
                        let target = self.to.add(target + r * jumps[1]);
                        if steps == [1, 1] {
                            source.copy_to_nonoverlapping(target, inner);
                        } else {
                            for i in 0..inner {
                                *target.add(i * steps[1]) = *source.add(i * steps[0]);
                            }
                        }
                    }
                }
                row += now;
            }
        });
    }

    /// Reads along dimension `first`, writes along the last: in blocks that go
    /// through a buffer, so that every cache line is read once and written
    /// once, whatever the strides.
    fn blocks(&self, first: usize) {
        let last = self.sizes.len() - 1;
        let (down, across) = (self.sizes[first], self.sizes[last]);
        let steps = [self.strides[0][last], self.strides[1][first]];
        let blocks = [down.div_ceil(BLOCK[0]), across.div_ceil(BLOCK[1])];
        let matrix_blocks = blocks[0] * blocks[1];
        let matrices = shape::numel(self.sizes) / (down * across);
        in_pieces(matrices * matrix_blocks, PIECE / (BLOCK[0] * BLOCK[1]), |start, count| {
            for i in start..start + count {
                let [source, target] = self.offsets(i / matrix_blocks, |d| d != first && d != last);
                let block = i % matrix_blocks;
                let (row, column) = (block % blocks[0] * BLOCK[0], block / blocks[0] * BLOCK[1]);
                let sizes = [BLOCK[0].min(down - row), BLOCK[1].min(across - column)];
                // SAFETY: within both tensors, see `Walk`.
                unsafe {
                    let source = self.from.add(source + row + column * steps[0]);
                    let target = self.to.add(target + row * steps[1] + column);
                    // Constant sizes make the loops fast.
                    if sizes == BLOCK {
                        transpose(source, target, steps, BLOCK);
                    } else {
                        transpose(source, target, steps, sizes);
                    }
                }
            }
        });
    }
}

/// Transposes a block: `target[i, j] = source[j, i]` for i and j below `sizes`,
/// which are at most [`BLOCK`].
///
/// # Safety
/// Both blocks are within their tensors and do not overlap.
#[inline(always)]
unsafe fn transpose(source: *const u32, target: *mut u32, steps: [usize; 2], sizes: [usize; 2]) {
    // One word more than a line, so that columns do not meet in the cache.
    let mut buffer = [[0u32; BLOCK[0] + 1]; BLOCK[1]];
    for (j, line) in buffer[..sizes[1]].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(source.add(j * steps[0]), sizes[0]) };
        line[..sizes[0]].copy_from_slice(from);
    }
    for i in 0..sizes[0] {
        for (j, line) in buffer[..sizes[1]].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *target.add(i * steps[1] + j) = line[i] };
        }
    }
}
