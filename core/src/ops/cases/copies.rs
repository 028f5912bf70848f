//! Cases of changes of layout.

use super::*;

pub fn copies(out: &mut Vec<Case>) {
    for (shape, order) in [
        (vec![1, 7], vec![1, 0]),
        (vec![65, 63], vec![1, 0]),
        (vec![3, 5, 7], vec![2, 0, 1]),
        (vec![2, 9, 4, 5], vec![0, 2, 1, 3]),
        (vec![2, 3, 4, 5], vec![3, 2, 1, 0]),
        (vec![2, 9, 3, 16], vec![0, 2, 3, 1]),
        (vec![3, 131, 67], vec![0, 2, 1]),
    ] {
        let name = format!("permute/{shape:?}_{order:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Permute(Permute { order }), vec![normal(&shape)]));
    }
    for (shape, starts, ends) in [
        (vec![257], vec![0], vec![1]),
        (vec![13, 65], vec![3, 1], vec![12, 64]),
        (vec![3, 5, 7], vec![0, 2, 0], vec![3, 5, 7]),
        (vec![3, 5, 7], vec![1, 4, 6], vec![2, 5, 7]),
    ] {
        let name = format!("slice/{shape:?}_{starts:?}_{ends:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Slice(Slice { starts, ends }), vec![normal(&shape)]));
    }
    for (shape, before, after) in [
        (vec![1], vec![3], vec![0]),
        (vec![13, 65], vec![0, 1], vec![2, 0]),
        (vec![3, 5, 7], vec![1, 0, 2], vec![0, 1, 1]),
    ] {
        let name = format!("pad/{shape:?}_{before:?}_{after:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Pad(Pad { before, after }), vec![normal(&shape)]));
    }
    for (axis, shapes) in [
        (0, vec![vec![65], vec![1], vec![63]]),
        (1, vec![vec![7, 3], vec![7, 11]]),
        (1, vec![vec![3, 1, 5], vec![3, 2, 5], vec![3, 4, 5]]),
        (0, vec![vec![4, 9]]),
    ] {
        let name = format!("concat/{shapes:?}_{axis}").replace(", ", "x");
        let inputs = shapes.iter().map(|s| normal(s)).collect();
        out.push(Case::new(name, Op::Concat(Concat { axis }), inputs));
    }
    for (shape, axis, sizes) in [
        (vec![65], 0, vec![64, 1]),
        (vec![7, 11], 1, vec![3, 1, 7]),
        (vec![3, 5, 7], 1, vec![2, 2, 1]),
        (vec![5, 3], 0, vec![5]),
    ] {
        let name = format!("split/{shape:?}_{axis}_{sizes:?}").replace(", ", "x");
        out.push(Case::new(name, Op::Split(Split { axis, sizes }), vec![normal(&shape)]));
    }
}
