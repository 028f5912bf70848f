// matmul_register: no workgroup memory and no barriers.
//
// Mapping: 32 invocations side by side along n, 4 neighbouring columns and 8
// rows each: a group computes 8 x 128 results. All invocations of a group read
// the same elements of A, which CPUs load once and spread, and GPUs too.
// Moves: A ceil(n / 128) times, B ceil(m / 8) times, mostly from caches. Bound
// by the loads of B on CPUs, by cache bandwidth on GPUs; for small or narrow
// products it wastes least.
const LANES: u32 = 32u;
const ROWS: u32 = 8u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = tile_of(linear_group(group, groups), ROWS, LANES * 4u);
    let m = parameter(0u);
    let n = parameter(1u);
    let count = parameter(2u);
    let row = tile.row;
    let column = tile.column + lane * 4u;
    if (!tile.exists || column >= n) {
        return;
    }
    // Rows and columns past the edge repeat the last one; they are not stored.
    let r0 = row;
    let r1 = min(row + 1u, m - 1u);
    let r2 = min(row + 2u, m - 1u);
    let r3 = min(row + 3u, m - 1u);
    let r4 = min(row + 4u, m - 1u);
    let r5 = min(row + 5u, m - 1u);
    let r6 = min(row + 6u, m - 1u);
    let r7 = min(row + 7u, m - 1u);
    let c0 = column;
    let c1 = min(column + 1u, n - 1u);
    let c2 = min(column + 2u, n - 1u);
    let c3 = min(column + 3u, n - 1u);
    // Named one by one: arrays indexed in the loop would leave the registers.
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var s4 = vec4<f32>();
    var s5 = vec4<f32>();
    var s6 = vec4<f32>();
    var s7 = vec4<f32>();
    for (var k = 0u; k < count; k++) {
        let b = vec4<f32>(
            load_b(tile.b + element_b(k, c0)),
            load_b(tile.b + element_b(k, c1)),
            load_b(tile.b + element_b(k, c2)),
            load_b(tile.b + element_b(k, c3)),
        );
        s0 = fma(vec4<f32>(load_a(tile.a + element_a(r0, k))), b, s0);
        s1 = fma(vec4<f32>(load_a(tile.a + element_a(r1, k))), b, s1);
        s2 = fma(vec4<f32>(load_a(tile.a + element_a(r2, k))), b, s2);
        s3 = fma(vec4<f32>(load_a(tile.a + element_a(r3, k))), b, s3);
        s4 = fma(vec4<f32>(load_a(tile.a + element_a(r4, k))), b, s4);
        s5 = fma(vec4<f32>(load_a(tile.a + element_a(r5, k))), b, s5);
        s6 = fma(vec4<f32>(load_a(tile.a + element_a(r6, k))), b, s6);
        s7 = fma(vec4<f32>(load_a(tile.a + element_a(r7, k))), b, s7);
    }
    // One call of the epilogue in a loop, not 32: compiling takes half as long.
    var sums = array<vec4<f32>, ROWS>(s0, s1, s2, s3, s4, s5, s6, s7);
    let rows = min(ROWS, m - row);
    let columns = min(4u, n - column);
    for (var r = 0u; r < rows; r++) {
        for (var c = 0u; c < columns; c++) {
            put(tile, row + r, column + c, sums[r][c]);
        }
    }
}
