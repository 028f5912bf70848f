// upsample_gradient: each element collects its shares of the outputs.
//
// Mapping: one invocation an element of x; it looks at the outputs that it may
// have a share in, in order, so that sums have one order: about 2 factors
// along each dimension. Groups are folded into x and y.
// Moves: each element once, each gradient up to 8 times, mostly from caches.
// Bound by bandwidth.
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

// First output along dimension d that element i may have a share in, and one
// past the last.
fn reached(d: u32, i: u32) -> vec2<u32> {
    let factor = parameter(7u + d);
    if (LINEAR == 0u) {
        return vec2<u32>(i * factor, (i + 1u) * factor);
    }
    let end = min(((2u * i + 3u) * factor + 1u) / 2u, parameter(4u + d));
    if (i == 0u) {
        return vec2<u32>(0u, end);
    }
    return vec2<u32>((2u * i - 1u) * factor / 2u, end);
}

fn share_of(d: u32, o: u32, i: u32) -> f32 {
    let source = source_of(d, o);
    return select(0.0f, 1.0f - source.share, source.low == i)
        + select(0.0f, source.share, source.high == i);
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
    let at = place_of(i, 1u);
    let zs = reached(0u, at.y);
    let ys = reached(1u, at.z);
    let xs = reached(2u, at.w);
    var sum = 0.0f;
    for (var z = zs.x; z < zs.y; z++) {
        let share_z = share_of(0u, z, at.y);
        for (var y = ys.x; y < ys.y; y++) {
            let share_y = share_z * share_of(1u, y, at.z);
            let row = position(at.x, z, y, 0u, 4u);
            for (var x = xs.x; x < xs.y; x++) {
                sum += share_y * share_of(2u, x, at.w) * load_gradient(row + x);
            }
        }
    }
    store_out(i, sum);
}
