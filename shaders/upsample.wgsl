// upsample: every element of x repeated, or linear between them.
//
// Mapping: one invocation an output; groups are folded into x and y.
// Moves: each output once, each input about once, the rest from caches. Bound
// by bandwidth.
// Parameters: elements to write, sizes of an input plane (1, 2, 3), of an
// output plane (4, 5, 6), factors (7, 8, 9).

// Which inputs an output takes along a dimension, and the share of the second.
struct Source {
    low: u32,
    high: u32,
    share: f32,
}

fn source_of(d: u32, o: u32) -> Source {
    let size = parameter(1u + d);
    let factor = parameter(7u + d);
    let low = o / factor;
    if (LINEAR == 0u) {
        return Source(low, low, 0.0f);
    }
    // (o + 1/2) / factor - 1/2 is low + (twice - factor) / (2 factor).
    let twice = 2u * (o - low * factor) + 1u;
    if (twice >= factor) {
        return Source(low, min(low + 1u, size - 1u), f32(twice - factor) / f32(2u * factor));
    }
    if (low == 0u) {
        return Source(0u, 0u, 0.0f);
    }
    return Source(low - 1u, low, f32(twice + factor) / f32(2u * factor));
}

fn along(plane: u32, z: u32, y: u32, x: Source) -> f32 {
    let row = position(plane, z, y, 0u, 1u);
    let low = load_x(row + x.low);
    if (x.share == 0.0f) {
        return low;
    }
    return low * (1.0f - x.share) + load_x(row + x.high) * x.share;
}

fn across(plane: u32, z: u32, y: Source, x: Source) -> f32 {
    let low = along(plane, z, y.low, x);
    if (y.share == 0.0f) {
        return low;
    }
    return low * (1.0f - y.share) + along(plane, z, y.high, x) * y.share;
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i >= parameter(0u)) {
        return;
    }
    let at = place_of(i, 4u);
    let z = source_of(0u, at.y);
    let y = source_of(1u, at.z);
    let x = source_of(2u, at.w);
    var value = across(at.x, z.low, y, x);
    if (z.share != 0.0f) {
        value = value * (1.0f - z.share) + across(at.x, z.high, y, x) * z.share;
    }
    store_y(i, value);
}
