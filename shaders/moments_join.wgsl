// moments_join: joins the chunks' means and sums of squared deviations that
// `moments` has left in [rows, chunks, 2].
//
// Mapping: an invocation a row. Moves 8 bytes a chunk. Bound by the launch.
// Parameters: as of `moments`.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups) * WORKGROUP + lane;
    if (row >= parameter(0u)) {
        return;
    }
    let length = parameter(1u);
    let chunks = parameter(3u);
    var mean = 0.0f;
    var deviation = 0.0f;
    var count = 0.0f;
    for (var c = 0u; c < chunks; c++) {
        let first = c * parameter(4u);
        if (first >= length) {
            break;
        }
        let added = f32(min(parameter(4u), length - first));
        let at = 2u * (row * chunks + c);
        let delta = load_partial(at) - mean;
        let share = added / (count + added);
        deviation += load_partial(at + 1u);
        if (CENTRED == 1u) {
            deviation += delta * delta * count * share;
        }
        mean += delta * share;
        count += added;
    }
    let variance = deviation / count;
    store_mean(row, mean);
    store_variance(row, variance);
    store_rstd(row, 1.0f / sqrt(variance + as_f32(parameter(5u))));
}
