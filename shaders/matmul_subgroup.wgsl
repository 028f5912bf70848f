// matmul_subgroup: elements of A go around the subgroup.
//
// Mapping: 64 invocations side by side along n, 2 columns (64 apart, so that
// loads coalesce) and 8 rows each: a group computes 8 x 128 results. Of each 4
// elements of a row of A, an invocation loads the one of its place modulo 4,
// and the first 4 of the subgroup, which exist whatever its size, pass theirs
// to all.
// Moves: A ceil(n / 128) times, B ceil(m / 8) times, mostly from caches. Bound
// by arithmetic on CPUs, by cache bandwidth on GPUs.
const LANES: u32 = 64u;
const ROWS: u32 = 8u;

// Past the last k both operands are 0, which adds nothing, whatever lies there.
fn take_a(tile: Tile, row: u32, k: u32) -> f32 {
    let count = parameter(2u);
    return select(0.0f, load_a(tile.a + element_a(row, min(k, count - 1u))), k < count);
}

fn take_b(tile: Tile, k: u32, columns: vec2<u32>) -> vec2<f32> {
    let count = parameter(2u);
    let last = min(k, count - 1u);
    let b = vec2<f32>(
        load_b(tile.b + element_b(last, columns.x)),
        load_b(tile.b + element_b(last, columns.y)),
    );
    return select(vec2<f32>(), b, k < count);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) place: u32,
) {
    let tile = tile_of(linear_group(group, groups), ROWS, LANES * 2u);
    if (!tile.exists) {
        return;
    }
    let m = parameter(0u);
    let n = parameter(1u);
    let count = parameter(2u);
    let row = tile.row;
    let column = tile.column + lane;
    // Rows and columns past the edge repeat the last one; they are not stored.
    let r0 = row;
    let r1 = min(row + 1u, m - 1u);
    let r2 = min(row + 2u, m - 1u);
    let r3 = min(row + 3u, m - 1u);
    let r4 = min(row + 4u, m - 1u);
    let r5 = min(row + 5u, m - 1u);
    let r6 = min(row + 6u, m - 1u);
    let r7 = min(row + 7u, m - 1u);
    let columns = min(vec2<u32>(column, column + LANES), vec2<u32>(n - 1u));
    // Named one by one: arrays indexed in the loop would leave the registers.
    var s0 = vec2<f32>();
    var s1 = vec2<f32>();
    var s2 = vec2<f32>();
    var s3 = vec2<f32>();
    var s4 = vec2<f32>();
    var s5 = vec2<f32>();
    var s6 = vec2<f32>();
    var s7 = vec2<f32>();
    for (var k = 0u; k < count; k += 4u) {
        let mine = k + (place & 3u);
        let a0 = take_a(tile, r0, mine);
        let a1 = take_a(tile, r1, mine);
        let a2 = take_a(tile, r2, mine);
        let a3 = take_a(tile, r3, mine);
        let a4 = take_a(tile, r4, mine);
        let a5 = take_a(tile, r5, mine);
        let a6 = take_a(tile, r6, mine);
        let a7 = take_a(tile, r7, mine);
        let b0 = take_b(tile, k, columns);
        s0 = fma(vec2<f32>(subgroupBroadcast(a0, 0u)), b0, s0);
        s1 = fma(vec2<f32>(subgroupBroadcast(a1, 0u)), b0, s1);
        s2 = fma(vec2<f32>(subgroupBroadcast(a2, 0u)), b0, s2);
        s3 = fma(vec2<f32>(subgroupBroadcast(a3, 0u)), b0, s3);
        s4 = fma(vec2<f32>(subgroupBroadcast(a4, 0u)), b0, s4);
        s5 = fma(vec2<f32>(subgroupBroadcast(a5, 0u)), b0, s5);
        s6 = fma(vec2<f32>(subgroupBroadcast(a6, 0u)), b0, s6);
        s7 = fma(vec2<f32>(subgroupBroadcast(a7, 0u)), b0, s7);
        let b1 = take_b(tile, k + 1u, columns);
        s0 = fma(vec2<f32>(subgroupBroadcast(a0, 1u)), b1, s0);
        s1 = fma(vec2<f32>(subgroupBroadcast(a1, 1u)), b1, s1);
        s2 = fma(vec2<f32>(subgroupBroadcast(a2, 1u)), b1, s2);
        s3 = fma(vec2<f32>(subgroupBroadcast(a3, 1u)), b1, s3);
        s4 = fma(vec2<f32>(subgroupBroadcast(a4, 1u)), b1, s4);
        s5 = fma(vec2<f32>(subgroupBroadcast(a5, 1u)), b1, s5);
        s6 = fma(vec2<f32>(subgroupBroadcast(a6, 1u)), b1, s6);
        s7 = fma(vec2<f32>(subgroupBroadcast(a7, 1u)), b1, s7);
        let b2 = take_b(tile, k + 2u, columns);
        s0 = fma(vec2<f32>(subgroupBroadcast(a0, 2u)), b2, s0);
        s1 = fma(vec2<f32>(subgroupBroadcast(a1, 2u)), b2, s1);
        s2 = fma(vec2<f32>(subgroupBroadcast(a2, 2u)), b2, s2);
        s3 = fma(vec2<f32>(subgroupBroadcast(a3, 2u)), b2, s3);
        s4 = fma(vec2<f32>(subgroupBroadcast(a4, 2u)), b2, s4);
        s5 = fma(vec2<f32>(subgroupBroadcast(a5, 2u)), b2, s5);
        s6 = fma(vec2<f32>(subgroupBroadcast(a6, 2u)), b2, s6);
        s7 = fma(vec2<f32>(subgroupBroadcast(a7, 2u)), b2, s7);
        let b3 = take_b(tile, k + 3u, columns);
        s0 = fma(vec2<f32>(subgroupBroadcast(a0, 3u)), b3, s0);
        s1 = fma(vec2<f32>(subgroupBroadcast(a1, 3u)), b3, s1);
        s2 = fma(vec2<f32>(subgroupBroadcast(a2, 3u)), b3, s2);
        s3 = fma(vec2<f32>(subgroupBroadcast(a3, 3u)), b3, s3);
        s4 = fma(vec2<f32>(subgroupBroadcast(a4, 3u)), b3, s4);
        s5 = fma(vec2<f32>(subgroupBroadcast(a5, 3u)), b3, s5);
        s6 = fma(vec2<f32>(subgroupBroadcast(a6, 3u)), b3, s6);
        s7 = fma(vec2<f32>(subgroupBroadcast(a7, 3u)), b3, s7);
    }
    // One call of the epilogue in a loop, not 16: compiling takes half as long.
    var sums = array<vec2<f32>, ROWS>(s0, s1, s2, s3, s4, s5, s6, s7);
    let rows = min(ROWS, m - row);
    for (var r = 0u; r < rows; r++) {
        for (var c = 0u; c < 2u; c++) {
            if (column + c * LANES < n) {
                put(tile, row + r, column + c * LANES, sums[r][c]);
            }
        }
    }
}
