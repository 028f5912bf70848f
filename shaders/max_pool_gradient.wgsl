// max_pool_gradient: the gradients of those windows whose largest element this
// is.
//
// Mapping: one invocation an element of the input; it looks at the windows
// that cover it, in order, so that sums have one order. Groups are folded into
// x and y.
// Moves: each element once, each window's position once for every element that
// it covers, mostly from caches. Bound by bandwidth.
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
    let at = place_of(i, 1u);
    let zs = covering(0u, at.y);
    let ys = covering(1u, at.z);
    let xs = covering(2u, at.w);
    let own = i32(i - position(at.x, 0u, 0u, 0u, 1u));
    var sum = 0.0f;
    for (var z = zs.x; z < zs.y; z++) {
        for (var y = ys.x; y < ys.y; y++) {
            let row = position(at.x, z, y, 0u, 4u);
            for (var x = xs.x; x < xs.y; x++) {
                if (load_indices(row + x) == own) {
                    sum += load_gradient(row + x);
                }
            }
        }
    }
    store_out(i, sum);
}
