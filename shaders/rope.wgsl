// rope: turns pair i of each head, elements i and i + half, by position ·
// frequency[i], an angle in 2⁻³² turns modulo whole turns.
//
// Mapping: an invocation a pair. Bound by bandwidth.
// Parameters: rows, length of a sequence, heads, elements of a head, first pair
// of this launch, its number of pairs, then their frequencies.

// Sine and cosine by Taylor's series on an eighth of a turn to either side:
// the built-in functions promise 2⁻¹¹ only.
fn sin_cos(turns: u32) -> vec2<f32> {
    let quarter = (turns + (1u << 29u)) >> 30u;
    // 2π / 2³².
    let x = f32(bitcast<i32>(turns - (quarter << 30u))) * 1.4629181e-9f;
    let z = x * x;
    let s = x + x * z * (-1.0f / 6.0f + z * (1.0f / 120.0f + z * (-1.0f / 5040.0f + z / 362880.0f)));
    let rest = 1.0f / 24.0f + z * (-1.0f / 720.0f + z * (1.0f / 40320.0f - z / 3628800.0f));
    let c = 1.0f - 0.5f * z + z * z * rest;
    switch quarter & 3u {
        case 0u: { return vec2<f32>(s, c); }
        case 1u: { return vec2<f32>(c, -s); }
        case 2u: { return vec2<f32>(-s, -c); }
        default: { return vec2<f32>(-c, s); }
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups) * WORKGROUP + lane;
    let pairs = parameter(5u);
    let row = number / pairs;
    if (row >= parameter(0u)) {
        return;
    }
    let pair = number - row * pairs;
    let position = row / parameter(2u) % parameter(1u);
    let turned = sin_cos(position * parameter(6u + pair));
    let first = row * parameter(3u) + parameter(4u) + pair;
    let second = first + parameter(3u) / 2u;
    let a = load_x(first);
    let b = load_x(second);
    store_out(first, a * turned.y - b * turned.x);
    store_out(second, b * turned.y + a * turned.x);
}
