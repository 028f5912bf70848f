// conv: a convolution as a product with gathered columns; with GRADIENT 1 that
// of the input's gradient, class by class of the stride's remainders.
//
// Mapping: a workgroup computes ROWS channels of COLUMNS elements (all items
// side by side) of one group and class; see convolution_tiles.wgsl. An
// invocation always loads for the same column, whose place it finds once.
// Moves: the weight once for each tile of columns, the elements once for each
// tap and tile of rows, mostly from caches. Bound by arithmetic and workgroup
// memory.
// Parameters: see convolution_gather.wgsl; then those of the printed epilogue.

// A column: an element of the output of all channels.
struct Column {
    exists: bool,
    // Where the item's group of planes starts in what is read.
    first: u32,
    // Its first tap's coordinates there, with signs.
    at: vec3<i32>,
    // Its place in the first plane that the group writes.
    out: u32,
}

fn column_of(i: u32, group: u32, residue: vec3<u32>, axes: Axes) -> Column {
    var counts = to_sizes();
    var stride = vec3<u32>(1u);
    if (GRADIENT == 1u) {
        stride = triple(13u);
        counts = (counts - residue + stride - 1u) / stride;
    }
    let count = volume(counts);
    let item = i / count;
    let q = coordinates(i - item * count, counts);
    let planes = item * parameter(1u) + group;
    let plane = volume(to_sizes());
    return Column(
        item < parameter(0u),
        planes * from_channels() * volume(from_sizes()),
        vec3<i32>(q) * axes.across + axes.base,
        planes * to_channels() * plane + position(q * stride + residue, to_sizes()),
    );
}

// The k-th term of the sums: a channel and a tap.
fn term_of(k: u32, axes: Axes) -> Term {
    let taps = volume(axes.taps);
    let channel = k / taps;
    let j = coordinates(k - channel * taps, axes.taps);
    return Term(
        weight_of(channel, 0u, tap_of(axes, j)),
        channel * volume(from_sizes()),
        vec3<i32>(j) * axes.step,
    );
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = to_channels();
    var classes = vec3<u32>(1u);
    var longest = to_sizes();
    if (GRADIENT == 1u) {
        classes = min(triple(13u), to_sizes());
        longest = (longest + triple(13u) - 1u) / triple(13u);
    }
    let across = (parameter(0u) * volume(longest) + COLUMNS - 1u) / COLUMNS;
    let down = (rows + ROWS - 1u) / ROWS;
    let number = linear_group(group, groups);
    let line = number / across;
    let stack = line / down;
    let first_column = (number - line * across) * COLUMNS;
    let first_row = (line - stack * down) * ROWS;
    let kind = stack / parameter(1u);
    let part = stack - kind * parameter(1u);
    if (kind >= volume(classes)) {
        return;
    }
    let residue = coordinates(kind, classes);
    let axes = axes_of(residue);
    let sizes = from_sizes();
    let count = from_channels() * volume(axes.taps);
    let weight = part * parameter(2u) * parameter(3u) * volume(triple(10u));
    let row_step = weight_of(0u, 1u, 0u);
    let mine = column_of(first_column + lane % COLUMNS, part, residue, axes);
    if (lane < STEP && lane < count) {
        terms[lane] = term_of(lane, axes);
    }
    workgroupBarrier();
    var sums = Sums();
    for (var k = 0u; k < count; k += STEP) {
        let now = k / STEP % 2u * STEP;
        for (var i = lane; i < ROWS * STEP; i += 256u) {
            let row = i / STEP;
            let term = i % STEP;
            var value = 0.0f;
            if (first_row + row < rows && k + term < count) {
                value = load_weight(weight + (first_row + row) * row_step + terms[now + term].a);
            }
            tile_a[term * ROWS + row] = value;
        }
        for (var i = lane; i < COLUMNS * STEP; i += 256u) {
            let term = i / COLUMNS;
            var value = 0.0f;
            if (mine.exists && k + term < count) {
                let found = terms[now + term];
                let at = mine.at + found.at;
                if (within(at, sizes)) {
                    value = load_from(mine.first + found.b + position(vec3<u32>(at), sizes));
                }
            }
            tile_b[i] = value;
        }
        if (lane < STEP && k + STEP + lane < count) {
            terms[STEP - now + lane] = term_of(k + STEP + lane, axes);
        }
        workgroupBarrier();
        sums = multiply(sums, lane);
        workgroupBarrier();
    }
    var results = array<vec4<f32>, 4>(sums.s0, sums.s1, sums.s2, sums.s3);
    let plane = volume(to_sizes());
    for (var c = 0u; c < 4u; c++) {
        let column = column_of(first_column + lane % QUADS * 4u + c, part, residue, axes);
        for (var r = 0u; r < 4u; r++) {
            let row = first_row + lane / QUADS * 4u + r;
            if (column.exists && row < rows) {
                let i = column.out + row * plane;
                store_out(i, epilogue(i, results[r][c]));
            }
        }
    }
}
