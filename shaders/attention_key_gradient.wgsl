// attention_key_gradient: the gradients of k and v.
//
// Mapping: a workgroup ROWS keys of a head of k, over tiles of COLUMNS queries
// of all heads of q that meet it, in order; the scores lie transposed. Four
// products a tile. Bound by arithmetic and workgroup memory.

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
    let blocks = (keys() + ROWS - 1u) / ROWS;
    let stack = number / blocks;
    if (stack >= parameter(0u) * key_heads()) {
        return;
    }
    let item = stack / key_heads();
    let key_head = stack - item * key_heads();
    let first = (number - stack * blocks) * ROWS;
    let at = key_at(item, first, key_head);
    let k = Strip(at, key_heads() * HEAD, min(ROWS, keys() - first));
    var to_keys = Sums();
    var to_values = Sums();
    var start = 0u;
    if (CAUSAL == 1u) {
        start = first / COLUMNS * COLUMNS;
    }
    for (var g = 0u; g < group_size(); g++) {
        let head = key_head * group_size() + g;
        for (var query = start; query < queries(); query += COLUMNS) {
            let count = min(COLUMNS, queries() - query);
            let q = Strip(query_at(item, query, head), heads() * HEAD, count);
            var scores = product(1u, k, 0u, q, lane);
            var slopes = product(2u, k, 3u, q, lane);
            for (var c = 0u; c < 2u; c++) {
                let column = query + lane % 16u * 2u + c;
                var logsumexp = 0.0f;
                var product_sum = 0.0f;
                if (column < queries()) {
                    let i = (item * heads() + head) * queries() + column;
                    logsumexp = load_rows(2u * i);
                    product_sum = load_rows(2u * i + 1u);
                }
                scores[c] = exp(scores[c] * scale() - logsumexp);
                for (var r = 0u; r < 4u; r++) {
                    if (!sees(item, column, first + lane / 16u * 4u + r)) {
                        scores[c][r] = 0.0f;
                    }
                }
                slopes[c] = select(
                    scores[c] * (slopes[c] - product_sum) * scale(),
                    vec4<f32>(0.0f),
                    scores[c] == vec4<f32>(0.0f),
                );
            }
            store_scores(scores, lane);
            accumulate(&to_values, 3u, q, lane);
            workgroupBarrier();
            store_scores(slopes, lane);
            accumulate(&to_keys, 0u, q, lane);
        }
    }
    for (var r = 0u; r < 4u; r++) {
        let row = lane / 16u * 4u + r;
        for (var j = 0u; j < PARTS; j++) {
            let column = j * 16u + lane % 16u;
            if (row < k.count && column < HEAD) {
                let i = k.first + row * k.step + column;
                store_to_k(i, to_keys.parts[j][r]);
                store_to_v(i, to_values.parts[j][r]);
            }
        }
    }
}
