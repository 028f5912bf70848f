// cross_entropy_gradient: (softmax - target) * gradient of the row's loss.
//
// Mapping: one invocation an element of the logits; groups are folded into x
// and y. In place, `logits` and `out` are the same memory: each invocation
// reads its element before it writes it.
// Moves: each logit once in, once out. Bound by bandwidth.
// Parameters: rows, classes, ignored label, bits of the label smoothing, place
// of the first row in the labels, logsumexp and gradient.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let classes = parameter(1u);
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i >= parameter(0u) * classes) {
        return;
    }
    let row = i / classes;
    let here = parameter(4u) + row;
    let label = load_labels(here);
    if (bitcast<u32>(label) == parameter(2u)) {
        store_out(i, 0.0f);
        return;
    }
    let smoothing = as_f32(parameter(3u));
    let at_label = select(0.0f, 1.0f - smoothing, u32(label) == i - row * classes);
    let target_share = at_label + smoothing / f32(classes);
    let share = exp(load_logits(i) - load_logsumexp(here));
    store_out(i, (share - target_share) * load_gradient(here));
}
