// attention_query_gradient: the gradient of q.
//
// Mapping: as attention: a workgroup ROWS queries of a head, over tiles of
// COLUMNS keys. Three products a tile. Bound by arithmetic and workgroup memory.

fn element(which: u32, i: u32) -> f32 {
    switch which {
        case 0u: { return load_q(i); }
        case 1u: { return load_k(i); }
        case 2u: { return load_v(i); }
        default: { return load_gradient(i); }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups);
    let blocks = (queries() + ROWS - 1u) / ROWS;
    let stack = number / blocks;
    if (stack >= parameter(0u) * heads()) {
        return;
    }
    let item = stack / heads();
    let head = stack - item * heads();
    let first = (number - stack * blocks) * ROWS;
    let q = Strip(query_at(item, first, head), heads() * HEAD, min(ROWS, queries() - first));
    var logsumexp = vec4<f32>(0.0f);
    var product_sum = vec4<f32>(0.0f);
    for (var r = 0u; r < 4u; r++) {
        let row = lane / 16u * 4u + r;
        if (row < q.count) {
            let i = stack * queries() + first + row;
            logsumexp[r] = load_rows(2u * i);
            product_sum[r] = load_rows(2u * i + 1u);
        }
    }
    var sums = Sums();
    var last = keys();
    if (CAUSAL == 1u) {
        last = min(last, first + ROWS);
    }
    for (var key = 0u; key < last; key += COLUMNS) {
        let at = key_at(item, key, head / group_size());
        let k = Strip(at, key_heads() * HEAD, min(COLUMNS, keys() - key));
        let scores = product(0u, q, 1u, k, lane);
        var slopes = product(3u, q, 2u, k, lane);
        for (var c = 0u; c < 2u; c++) {
            let p = exp(scores[c] * scale() - logsumexp);
            slopes[c] = p * (slopes[c] - product_sum) * scale();
            for (var r = 0u; r < 4u; r++) {
                let row = first + lane / 16u * 4u + r;
                if (!sees(item, row, key + lane % 16u * 2u + c)) {
                    slopes[c][r] = 0.0f;
                }
            }
        }
        store_scores(slopes, lane);
        accumulate(&sums, 1u, k, lane);
    }
    for (var r = 0u; r < 4u; r++) {
        let row = lane / 16u * 4u + r;
        for (var j = 0u; j < PARTS; j++) {
            let column = j * 16u + lane % 16u;
            if (row < q.count && column < HEAD) {
                store_to_q(q.first + row * q.step + column, sums.parts[j][r]);
            }
        }
    }
}
