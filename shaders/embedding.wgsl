// embedding: rows of a table by index; NaN for an index outside the table, so
// that it does not go unseen.
//
// Mapping: one invocation an element of the output; groups are folded into x
// and y.
// Moves: each output element once in, once out, and its index. Bound by
// bandwidth.
// Parameters: rows, width, number of indices.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let width = parameter(1u);
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i >= parameter(2u) * width) {
        return;
    }
    // A negative index is a large unsigned one.
    let row = u32(load_indices(i / width));
    if (row < parameter(0u)) {
        store_out(i, load_table(row * width + i % width));
    } else {
        store_out(i, as_f32(0x7fc00000u));
    }
}
