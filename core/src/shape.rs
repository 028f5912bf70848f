//! Shapes, strides and broadcasting.

/// Number of elements of a shape (1 for a scalar).
pub fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Number of elements, if kernels can index them all: from 1 to 2³¹ − 1, so that
/// positions fit signed words, and whole workgroups past the end unsigned ones.
pub fn checked_numel(shape: &[usize]) -> Option<usize> {
    let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    (1..=i32::MAX as usize).contains(&count).then_some(count)
}

/// Row-major strides in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        out[d] = out[d + 1] * shape[d + 1];
    }
    out
}

/// The common shape under NumPy's broadcasting rule, or `None`.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], d: usize| if d + s.len() >= rank { s[d + s.len() - rank] } else { 1 };
    (0..rank)
        .map(|d| match (at(a, d), at(b, d)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Strides with which `shape` is read when broadcast to `to` (0 where repeated).
pub fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(shape);
    let lead = to.len() - shape.len();
    (0..to.len())
        .map(|d| if d < lead || shape[d - lead] == 1 { 0 } else { own[d - lead] })
        .collect()
}

/// Axes of `to` over which a tensor of shape `shape` is repeated.
pub fn broadcast_axes(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let lead = to.len() - shape.len();
    (0..to.len()).filter(|&d| d < lead || (shape[d - lead] == 1 && to[d] != 1)).collect()
}

/// Merges neighbouring dimensions wherever every operand walks them as one, so
/// that kernels see the fewest dimensions. `strides` holds one row an operand.
/// Dimensions of size 1 vanish; a scalar keeps one dimension of size 1.
pub fn collapse(shape: &[usize], strides: &[Vec<usize>]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut dims: Vec<usize> = Vec::new();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); strides.len()];
    for d in 0..shape.len() {
        if shape[d] == 1 {
            continue;
        }
        let merges = !dims.is_empty()
            && strides.iter().zip(&out).all(|(s, o)| o[dims.len() - 1] == s[d] * shape[d]);
        if merges {
            *dims.last_mut().expect("not empty") *= shape[d];
            for (s, o) in strides.iter().zip(&mut out) {
                *o.last_mut().expect("not empty") = s[d];
            }
        } else {
            dims.push(shape[d]);
            for (s, o) in strides.iter().zip(&mut out) {
                o.push(s[d]);
            }
        }
    }
    if dims.is_empty() {
        dims.push(1);
        out.iter_mut().for_each(|o| o.push(0));
    }
    (dims, out)
}

/// `[2, 3]` as text.
pub fn display(shape: &[usize]) -> String {
    format!("{shape:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast(&[5, 7], &[7]), Some(vec![5, 7]));
        assert_eq!(broadcast(&[5, 1], &[7]), Some(vec![5, 7]));
        assert_eq!(broadcast(&[5, 2], &[7]), None);
        assert_eq!(broadcast_strides(&[7], &[5, 7]), vec![0, 1]);
        assert_eq!(broadcast_axes(&[5, 1], &[3, 5, 7]), vec![0, 2]);
    }

    #[test]
    fn counting() {
        assert_eq!(checked_numel(&[]), Some(1));
        assert_eq!(checked_numel(&[1 << 16, (1 << 15) - 1]), Some((1 << 31) - (1 << 16)));
        assert_eq!(checked_numel(&[1 << 16, 1 << 15]), None);
        assert_eq!(checked_numel(&[usize::MAX, 2]), None);
        assert_eq!(checked_numel(&[usize::MAX, 0]), None);
    }

    #[test]
    fn collapsing() {
        let s = vec![strides(&[2, 3, 4]), broadcast_strides(&[4], &[2, 3, 4])];
        assert_eq!(collapse(&[2, 3, 4], &s), (vec![6, 4], vec![vec![4, 1], vec![0, 1]]));
        assert_eq!(collapse(&[], &[vec![]]), (vec![1], vec![vec![0]]));
    }
}
