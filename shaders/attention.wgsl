// attention: the output and the logarithm of the sum of each row of scores.
//
// Mapping: a workgroup ROWS queries of a head; it walks the keys in tiles of
// COLUMNS, see attention_tiles.wgsl. Each invocation keeps the largest score
// and the sum of its four rows, which sixteen of them compute alike.
// Moves: k and v once for each tile of queries, mostly from caches. Bound by
// arithmetic and workgroup memory.

fn element(which: u32, i: u32) -> f32 {
    switch which {
        case 0u: { return load_q(i); }
        case 1u: { return load_k(i); }
        default: { return load_v(i); }
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
    var sums = Sums();
    var largest = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0f);
    var last = keys();
    if (CAUSAL == 1u) {
        last = min(last, first + ROWS);
    }
    for (var key = 0u; key < last; key += COLUMNS) {
        let at = key_at(item, key, head / group_size());
        let k = Strip(at, key_heads() * HEAD, min(COLUMNS, keys() - key));
        var scores = product(0u, q, 1u, k, lane);
        for (var c = 0u; c < 2u; c++) {
            for (var r = 0u; r < 4u; r++) {
                let column = lane % 16u * 2u + c;
                let row = lane / 16u * 4u + r;
                if (sees(item, first + row, key + column)) {
                    scores[c][r] *= scale();
                } else {
                    scores[c][r] = LOWEST;
                }
            }
        }
        store_scores(scores, lane);
        workgroupBarrier();
        var now = largest;
        for (var c = 0u; c < COLUMNS; c++) {
            now = max(now, quad_of_scores(c, lane));
        }
        workgroupBarrier();
        for (var c = 0u; c < 2u; c++) {
            let hidden = scores[c] == vec4<f32>(LOWEST);
            scores[c] = select(exp(scores[c] - now), vec4<f32>(0.0f), hidden);
        }
        store_scores(scores, lane);
        workgroupBarrier();
        // While no key has been seen this is 1, of sums that are 0.
        let correction = exp(largest - now);
        largest = now;
        total *= correction;
        for (var c = 0u; c < COLUMNS; c++) {
            total += quad_of_scores(c, lane);
        }
        for (var j = 0u; j < PARTS; j++) {
            sums.parts[j] *= correction;
        }
        accumulate(&sums, 2u, k, lane);
    }
    for (var r = 0u; r < 4u; r++) {
        let row = lane / 16u * 4u + r;
        let seen = total[r] != 0.0f;
        if (row < q.count) {
            for (var j = 0u; j < PARTS; j++) {
                let column = j * 16u + lane % 16u;
                if (column < HEAD) {
                    let i = q.first + row * q.step + column;
                    store_out(i, select(0.0f, sums.parts[j][r] / total[r], seen));
                }
            }
            if (lane % 16u == 0u) {
                let i = stack * queries() + first + row;
                store_logsumexp(i, select(0.0f, largest[r] + log(total[r]), seen));
            }
        }
    }
}
