// avg_pool_gradient: shares of the gradients of the windows that cover an
// element.
//
// Mapping: one invocation an element of the input; it adds up the windows that
// cover it, in order, so that sums have one order. Groups are folded into x
// and y.
// Moves: each element once, each gradient once for every element that its
// window covers, mostly from caches. Bound by bandwidth.
// Parameters: see pool.wgsl; then (16) whether padding counts as elements.
fn length_of(range: vec2<u32>) -> u32 {
    return range.y - range.x;
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
    let zs = covering(0u, at.y);
    let ys = covering(1u, at.z);
    let xs = covering(2u, at.w);
    let include_padding = parameter(16u) == 1u;
    let whole = parameter(7u) * parameter(8u) * parameter(9u);
    var sum = 0.0f;
    for (var z = zs.x; z < zs.y; z++) {
        let depth = length_of(covered(0u, z));
        for (var y = ys.x; y < ys.y; y++) {
            let area = depth * length_of(covered(1u, y));
            let row = position(at.x, z, y, 0u, 4u);
            for (var x = xs.x; x < xs.y; x++) {
                let count = select(area * length_of(covered(2u, x)), whole, include_padding);
                sum += load_gradient(row + x) / f32(count);
            }
        }
    }
    store_out(i, sum);
}
