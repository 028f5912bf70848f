// embedding_gradient: adds up the gradients of each row of the table. The
// output is zeros when this starts.
//
// Mapping: a workgroup an index. Where the index occurs for the first time,
// the group's lanes take the columns and add up this and all later
// occurrences in order; the other groups end. So each row has one writer, and
// the sums have one order. Groups are folded into x and y.
// Moves: indices² / 2 index words, which caches serve, and each gradient and
// each touched row once. Bound by bandwidth up to some thousand indices.
// Parameters: rows, width, number of indices.
var<workgroup> seen: atomic<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let width = parameter(1u);
    let count = parameter(2u);
    let here = linear_group(group, groups);
    if (here >= count) {
        return;
    }
    if (lane == 0u) {
        atomicStore(&seen, 0u);
    }
    workgroupBarrier();
    let index = load_indices(here);
    for (var i = lane; i < here; i += WORKGROUP) {
        if (load_indices(i) == index) {
            atomicStore(&seen, 1u);
        }
    }
    workgroupBarrier();
    // A negative index is a large unsigned one.
    if (atomicLoad(&seen) == 1u || u32(index) >= parameter(0u)) {
        return;
    }
    for (var column = lane; column < width; column += WORKGROUP) {
        var sum = 0.0f;
        for (var i = here; i < count; i++) {
            if (load_indices(i) == index) {
                sum += load_gradient(i * width + column);
            }
        }
        store_out(u32(index) * width + column, sum);
    }
}
