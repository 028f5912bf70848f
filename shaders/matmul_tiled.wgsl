// matmul_tiled: both operands go through workgroup memory.
//
// Mapping: 256 invocations compute 64 x 64 results, 4 x 4 each; 16 elements of
// k at a time are brought into workgroup memory (8 KiB), each invocation
// loading 4 of A and 4 of B, neighbours along what is contiguous in storage.
// Moves: A ceil(n / 64) times, B ceil(m / 64) times. Bound by arithmetic and by
// workgroup memory on GPUs; on CPUs the barriers cost most.
const STEP: u32 = 16u;

// [k, row] and [k, column]. Scalars: a component of a vector has no memory
// location of its own that others could write beside.
var<workgroup> tile_a: array<f32, 1024>;
var<workgroup> tile_b: array<f32, 1024>;

fn quad_a(i: u32) -> vec4<f32> {
    return vec4<f32>(tile_a[i], tile_a[i + 1u], tile_a[i + 2u], tile_a[i + 3u]);
}

fn quad_b(i: u32) -> vec4<f32> {
    return vec4<f32>(tile_b[i], tile_b[i + 1u], tile_b[i + 2u], tile_b[i + 3u]);
}

// Past the edges both operands are 0, which adds nothing.
fn take_a(first: u32, row: u32, k: u32) -> f32 {
    if (row < parameter(0u) && k < parameter(2u)) {
        return load_a(first + element_a(row, k));
    }
    return 0.0f;
}

fn take_b(first: u32, k: u32, column: u32) -> f32 {
    if (k < parameter(2u) && column < parameter(1u)) {
        return load_b(first + element_b(k, column));
    }
    return 0.0f;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = tile_of(linear_group(group, groups), 64u, 64u);
    if (!tile.exists) {
        return;
    }
    let m = parameter(0u);
    let n = parameter(1u);
    let count = parameter(2u);
    // 16 x 16: the place of this invocation's results, in quads.
    let down = lane / 16u;
    let across = lane % 16u;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var k = 0u; k < count; k += STEP) {
        for (var j = 0u; j < 4u; j++) {
            if (TRANSPOSE_A == 1u) {
                // Rows are contiguous in storage.
                let i = j * 256u + lane;
                tile_a[i] = take_a(tile.a, tile.row + i % 64u, k + i / 64u);
            } else {
                // k is contiguous in storage.
                let row = j * 16u + down;
                tile_a[across * 64u + row] = take_a(tile.a, tile.row + row, k + across);
            }
        }
        for (var j = 0u; j < 4u; j++) {
            if (TRANSPOSE_B == 1u) {
                // k is contiguous in storage.
                let column = j * 16u + down;
                tile_b[across * 64u + column] = take_b(tile.b, k + across, tile.column + column);
            } else {
                // Columns are contiguous in storage.
                let i = j * 256u + lane;
                tile_b[i] = take_b(tile.b, k + i / 64u, tile.column + i % 64u);
            }
        }
        workgroupBarrier();
        for (var j = 0u; j < STEP; j++) {
            let a = quad_a(j * 64u + down * 4u);
            let b = quad_b(j * 64u + across * 4u);
            s0 = fma(vec4<f32>(a.x), b, s0);
            s1 = fma(vec4<f32>(a.y), b, s1);
            s2 = fma(vec4<f32>(a.z), b, s2);
            s3 = fma(vec4<f32>(a.w), b, s3);
        }
        workgroupBarrier();
    }
    var sums = array<vec4<f32>, 4>(s0, s1, s2, s3);
    let row = tile.row + down * 4u;
    let column = tile.column + across * 4u;
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            if (row + r < m && column + c < n) {
                put(tile, row + r, column + c, sums[r][c]);
            }
        }
    }
}
