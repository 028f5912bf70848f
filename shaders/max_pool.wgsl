// max_pool: the largest element of each window and its position in the plane,
// the first of equals. NaN counts as the largest.
//
// Mapping: one invocation an output; groups are folded into x and y.
// Moves: each output twice (value and position), each input once for every
// window that covers it, mostly from caches. Bound by bandwidth.
// Parameters: see pool.wgsl.
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
    let zs = covered(0u, at.y);
    let ys = covered(1u, at.z);
    let xs = covered(2u, at.w);
    let plane = position(at.x, 0u, 0u, 0u, 1u);
    var best = as_f32(0xff800000u);
    // If all are minus infinity, the first.
    var best_at = position(at.x, zs.x, ys.x, xs.x, 1u);
    for (var z = zs.x; z < zs.y; z++) {
        for (var y = ys.x; y < ys.y; y++) {
            let row = position(at.x, z, y, 0u, 1u);
            for (var x = xs.x; x < xs.y; x++) {
                let value = load_x(row + x);
                if (value > best || !(value == value)) {
                    best = value;
                    best_at = row + x;
                }
            }
        }
    }
    store_y(i, best);
    store_indices(i, i32(best_at - plane));
}
