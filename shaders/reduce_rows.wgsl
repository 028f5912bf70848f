// reduce_rows: sum or maximum of each row of [rows, length].
//
// Mapping: a workgroup a row; lane l takes the elements l, l + WORKGROUP, …
// of it, and a tree in workgroup memory joins the lanes, always in the same
// order. Groups are folded into x and y.
// Moves: every element once. Bound by bandwidth for long rows, by the launch
// of groups for short ones.
// Parameters: rows, length, then those of the printed prologue.
var<workgroup> partial: array<f32, WORKGROUP>;

fn join(a: f32, b: f32) -> f32 {
    if (MAXIMUM == 1u) {
        return max_f32(a, b);
    }
    return a + b;
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups);
    if (row >= parameter(0u)) {
        return;
    }
    let length = parameter(1u);
    var sum = 0.0f;
    if (MAXIMUM == 1u) {
        // Minus infinity.
        sum = as_f32(0xff800000u);
    }
    for (var i = lane; i < length; i += WORKGROUP) {
        sum = join(sum, prologue(row * length + i));
    }
    partial[lane] = sum;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            partial[lane] = join(partial[lane], partial[lane + half]);
        }
    }
    if (lane == 0u) {
        store_out(row, partial[0]);
    }
}
