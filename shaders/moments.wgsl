// moments: mean, variance and 1 / sqrt(variance + epsilon) of the rows of
// [outer, rows, inner].
//
// Mapping: a workgroup a chunk of a row; lane l takes the chunk's elements l,
// l + WORKGROUP, …, first for the mean, then for the squared deviations from
// it; trees in workgroup memory join the lanes, always in the same order.
// Groups are folded into x and y.
// Moves: every element twice, the second time from caches. Bound by bandwidth.
// Parameters: rows, length of a row, inner, chunks, elements of a chunk, bits
// of epsilon.
var<workgroup> partials: array<f32, WORKGROUP>;

fn element(row: u32, i: u32) -> u32 {
    if (CONTIGUOUS == 1u) {
        return row * parameter(1u) + i;
    }
    let inner = parameter(2u);
    let o = i / inner;
    return (o * parameter(0u) + row) * inner + (i - o * inner);
}

fn total(lane: u32, x: f32) -> f32 {
    partials[lane] = x;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            partials[lane] += partials[lane + half];
        }
    }
    workgroupBarrier();
    let sum = partials[0];
    // Before the next total overwrites it.
    workgroupBarrier();
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let here = linear_group(group, groups);
    let chunks = parameter(3u);
    if (here >= parameter(0u) * chunks) {
        return;
    }
    let row = here / chunks;
    let first = (here - row * chunks) * parameter(4u);
    let end = min(first + parameter(4u), parameter(1u));
    // Chunks of rounded up length may leave none for the last.
    let count = f32(max(end, first + 1u) - first);
    var sum = 0.0f;
    for (var i = first + lane; i < end; i += WORKGROUP) {
        sum += load_x(element(row, i));
    }
    let mean = total(lane, sum) / count;
    let centre = select(0.0f, mean, CENTRED == 1u);
    var squares = 0.0f;
    for (var i = first + lane; i < end; i += WORKGROUP) {
        let d = load_x(element(row, i)) - centre;
        squares += d * d;
    }
    let deviation = total(lane, squares);
    if (lane != 0u) {
        return;
    }
    if (PARTIAL == 1u) {
        // The three outputs are one workspace here.
        store_mean(2u * here, mean);
        store_variance(2u * here + 1u, deviation);
    } else {
        let variance = deviation / count;
        store_mean(row, mean);
        store_variance(row, variance);
        store_rstd(row, 1.0f / sqrt(variance + as_f32(parameter(5u))));
    }
}
