// map: an elementwise expression over broadcast inputs.
//
// Mapping: one invocation an element; groups are folded into x and y.
// Moves: every input and output element once (inputs that broadcast stay in
// caches). Bound by bandwidth, but for expressions with many functions.
// Parameters: elements, then sizes and strides of the printed body.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i < parameter(0u)) {
        evaluate(i);
    }
}
