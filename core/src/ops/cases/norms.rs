//! Cases of `moments`.

use super::*;

pub fn norms(out: &mut Vec<Case>) {
    for (extents, centred) in [
        ([1, 5, 1], true),
        ([1, 33, 7], true),
        ([1, 3, 257], true),
        ([1, 3, 257], false),
        ([4, 3, 1], true),
        ([5, 7, 9], true),
        ([5, 7, 9], false),
        ([3, 2, 65], true),
        // Rows that are cut into chunks, contiguous or not.
        ([1, 2, 9001], true),
        ([1, 2, 9001], false),
        ([7, 3, 1201], true),
    ] {
        let length = extents[0] * extents[2];
        let kind = if centred { "centred" } else { "plain" };
        let [o, r, i] = extents;
        let op = Op::Moments(Moments { extents, centred, epsilon: 1e-5 });
        let inputs = vec![normal(&[o, r, i])];
        let case = Case::new(format!("moments/{o}x{r}x{i}_{kind}"), op, inputs);
        // Of one element the variance is 0 and nothing to be relative to.
        let case = if length == 1 { case.forward_only() } else { case };
        out.push(case.terms(length, 1).ulps(8.0));
    }
}
