// attention_rows: what the gradient of attention needs of each row of scores,
// side by side: the logarithm of its sum, and Σ gradient · output.
//
// Mapping: sixteen invocations a row of the output. Bound by bandwidth.
// Parameters: batch, queries, heads.
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups) * 16u + lane / 16u;
    let queries = parameter(1u);
    let heads = parameter(2u);
    let rows = parameter(0u) * queries * heads;
    var sum = 0.0f;
    if (row < rows) {
        for (var i = lane % 16u; i < HEAD; i += 16u) {
            sum = fma(load_gradient(row * HEAD + i), load_out(row * HEAD + i), sum);
        }
    }
    partial[lane] = sum;
    workgroupBarrier();
    if (lane % 16u != 0u || row >= rows) {
        return;
    }
    sum = 0.0f;
    for (var i = 0u; i < 16u; i++) {
        sum += partial[lane + i];
    }
    // From [batch, query, head] to [batch, head, query].
    let line = row / heads;
    let item = line / queries;
    let to = (item * heads + row % heads) * queries + line % queries;
    store_rows(2u * to, load_logsumexp(to));
    store_rows(2u * to + 1u, sum);
}
