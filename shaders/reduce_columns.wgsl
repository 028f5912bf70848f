// reduce_columns: sum or maximum over the middle of [outer, length, inner],
// the length cut into chunks: writes [outer, chunks, inner].
//
// Mapping: an invocation a result, neighbours side by side along inner, so
// that loads coalesce; groups are folded into x and y.
// Moves: every element once. Bound by bandwidth where outer * chunks * inner
// fills the device.
// With ACCUMULATE the sums are added to what the output holds.
// Parameters: outer, length, inner, chunks, rows of a chunk, then those of the
// printed prologue.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let length = parameter(1u);
    let inner = parameter(2u);
    let chunks = parameter(3u);
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i >= parameter(0u) * chunks * inner) {
        return;
    }
    let column = i % inner;
    let chunk = i / inner % chunks;
    let first = chunk * parameter(4u);
    let end = min(first + parameter(4u), length);
    var element = (i / inner / chunks * length + first) * inner + column;
    var sum = 0.0f;
    if (MAXIMUM == 1u) {
        // Minus infinity.
        sum = as_f32(0xff800000u);
    }
    if (ACCUMULATE == 1u) {
        sum = load_out(i);
    }
    for (var row = first; row < end; row++) {
        let x = prologue(element);
        if (MAXIMUM == 1u) {
            sum = max_f32(sum, x);
        } else {
            sum += x;
        }
        element += inner;
    }
    store_out(i, sum);
}
