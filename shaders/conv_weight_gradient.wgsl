// conv_weight_gradient: the product of the output's gradient with the gathered
// windows, over a slice of them; writes [slices, weight].
//
// Mapping: a workgroup computes ROWS channels of the output by COLUMNS
// channels and taps of the input, of one group and slice; see
// convolution_tiles.wgsl. An invocation always loads for the same column.
// Moves: the gradient once for each tile of columns, the input once for each
// tap and tile of rows, mostly from caches. Bound by arithmetic and workgroup
// memory.
// Parameters: see convolution.wgsl; then windows of a slice (22), slices (23).

// A window, by its number over all items.
fn term_of(window: u32) -> Term {
    let sizes = triple(7u);
    let count = volume(sizes);
    let item = window / count;
    let at = window - item * count;
    return Term(
        item * parameter(1u) * parameter(3u) * count + at,
        item * parameter(1u) * parameter(2u) * volume(triple(4u)),
        vec3<i32>(coordinates(at, sizes) * triple(13u)),
    );
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let kernel = triple(10u);
    let taps = volume(kernel);
    let rows = parameter(3u);
    let columns = parameter(2u) * taps;
    let across = (columns + COLUMNS - 1u) / COLUMNS;
    let down = (rows + ROWS - 1u) / ROWS;
    let number = linear_group(group, groups);
    let line = number / across;
    let stack = line / down;
    let first_column = (number - line * across) * COLUMNS;
    let first_row = (line - stack * down) * ROWS;
    let slice = stack / parameter(1u);
    let part = stack - slice * parameter(1u);
    let plane = volume(triple(7u));
    let windows = parameter(0u) * plane;
    let first = slice * parameter(22u);
    // The last slices may be empty; their sums are zeros.
    let end = min(first + parameter(22u), windows);
    if (slice >= parameter(23u)) {
        return;
    }
    let sizes = triple(4u);
    let gradients = part * rows * plane;
    let mine = first_column + lane % COLUMNS;
    let channel = mine / taps;
    let tap = coordinates(mine - channel * taps, kernel) * triple(19u);
    let base = vec3<i32>(tap) - vec3<i32>(triple(16u));
    let inputs = (part * parameter(2u) + channel) * volume(sizes);
    if (lane < STEP && first + lane < end) {
        terms[lane] = term_of(first + lane);
    }
    workgroupBarrier();
    var sums = Sums();
    var step = 0u;
    for (var k = first; k < end; k += STEP) {
        let now = step % 2u * STEP;
        for (var i = lane; i < ROWS * STEP; i += 256u) {
            let row = i / STEP;
            let term = i % STEP;
            var value = 0.0f;
            if (first_row + row < rows && k + term < end) {
                value = load_gradient(gradients + (first_row + row) * plane + terms[now + term].a);
            }
            tile_a[term * ROWS + row] = value;
        }
        for (var i = lane; i < COLUMNS * STEP; i += 256u) {
            let term = i / COLUMNS;
            var value = 0.0f;
            if (mine < columns && k + term < end) {
                let found = terms[now + term];
                let at = base + found.at;
                if (within(at, sizes)) {
                    value = load_x(inputs + found.b + position(vec3<u32>(at), sizes));
                }
            }
            tile_b[i] = value;
        }
        if (lane < STEP && k + STEP + lane < end) {
            terms[STEP - now + lane] = term_of(k + STEP + lane);
        }
        workgroupBarrier();
        sums = multiply(sums, lane);
        workgroupBarrier();
        step++;
    }
    var results = array<vec4<f32>, 4>(sums.s0, sums.s1, sums.s2, sums.s3);
    let out = (slice * parameter(1u) + part) * rows;
    for (var c = 0u; c < 4u; c++) {
        let column = first_column + lane % QUADS * 4u + c;
        for (var r = 0u; r < 4u; r++) {
            let row = first_row + lane / QUADS * 4u + r;
            if (column < columns && row < rows) {
                store_out((out + row) * columns + column, results[r][c]);
            }
        }
    }
}
