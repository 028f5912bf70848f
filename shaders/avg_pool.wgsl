// avg_pool: the mean of each window.
//
// Mapping: one invocation an output; groups are folded into x and y.
// Moves: each output once, each input once for every window that covers it,
// mostly from caches. Bound by bandwidth.
// Parameters: see pool.wgsl; then (16) whether padding counts as elements.
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
    var sum = 0.0f;
    for (var z = zs.x; z < zs.y; z++) {
        for (var y = ys.x; y < ys.y; y++) {
            let row = position(at.x, z, y, 0u, 1u);
            for (var x = xs.x; x < xs.y; x++) {
                sum += load_x(row + x);
            }
        }
    }
    var count = (zs.y - zs.x) * (ys.y - ys.x) * (xs.y - xs.x);
    if (parameter(16u) == 1u) {
        count = parameter(7u) * parameter(8u) * parameter(9u);
    }
    store_y(i, sum / f32(count));
}
