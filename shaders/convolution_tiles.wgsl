// Tiles of a product whose operands are gathered: 256 invocations compute
// ROWS x COLUMNS elements, 4 x 4 each; STEP terms of the sums at a time are
// brought into workgroup memory (less than 10 KiB).
const QUADS: u32 = COLUMNS / 4u;

// [term, row] and [term, column].
var<workgroup> tile_a: array<f32, ROWS * STEP>;
var<workgroup> tile_b: array<f32, COLUMNS * STEP>;

// Where the terms of this step and of the next are found: computed once, not
// by each invocation that loads.
struct Term {
    a: u32,
    b: u32,
    at: vec3<i32>,
}

var<workgroup> terms: array<Term, 2u * STEP>;

fn quad_a(i: u32) -> vec4<f32> {
    return vec4<f32>(tile_a[i], tile_a[i + 1u], tile_a[i + 2u], tile_a[i + 3u]);
}

fn quad_b(i: u32) -> vec4<f32> {
    return vec4<f32>(tile_b[i], tile_b[i + 1u], tile_b[i + 2u], tile_b[i + 3u]);
}

struct Sums {
    s0: vec4<f32>,
    s1: vec4<f32>,
    s2: vec4<f32>,
    s3: vec4<f32>,
}

// Adds the products of what lies in workgroup memory.
fn multiply(old: Sums, lane: u32) -> Sums {
    var s = old;
    for (var j = 0u; j < STEP; j++) {
        let a = quad_a(j * ROWS + lane / QUADS * 4u);
        let b = quad_b(j * COLUMNS + lane % QUADS * 4u);
        s.s0 = fma(vec4<f32>(a.x), b, s.s0);
        s.s1 = fma(vec4<f32>(a.y), b, s.s1);
        s.s2 = fma(vec4<f32>(a.z), b, s.s2);
        s.s3 = fma(vec4<f32>(a.w), b, s.s3);
    }
    return s;
}
