// What every kernel may call. Names are those that printed expressions use
// (core/src/expression/printer.rs).

// A float from its bits: WGSL has no literals for infinities and NaN, and
// refuses constant expressions that give one. The argument of a function is
// not a constant expression.
fn as_f32(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

// The larger and the smaller of two; NaN on either side stays as far as the
// device knows NaN (the built-in functions may drop it).
fn max_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b > a || !(b == b));
}

fn min_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b < a || !(b == b));
}

// tanh, within a few ulp: minimax polynomial for |x| < 0.625 (Cephes' tanhf),
// else by e^-2|x|, which cannot overflow.
fn tanh_f32(x: f32) -> f32 {
    let a = abs(x);
    let z = x * x;
    var p = -5.7049887e-3f;
    p = p * z + 2.0639089e-2f;
    p = p * z - 5.3739715e-2f;
    p = p * z + 1.3331442e-1f;
    p = p * z - 3.3333279e-1f;
    let near = p * z * x + x;
    let e = exp(-2.0f * a);
    let far = (1.0f - e) / (1.0f + e);
    return select(select(far, -far, x < 0.0f), near, a < 0.625f);
}

// erf, within 2e-7 absolutely, and relatively near 0: Taylor series for
// |x| < 1, else 1 - P(t) e^-x^2 (Abramowitz and Stegun 7.1.26).
fn erf_f32(x: f32) -> f32 {
    let a = abs(x);
    let z = x * x;
    var p = -1.0f / 6894720.0f;
    p = p * z + 1.0f / 685440.0f;
    p = p * z - 1.0f / 75600.0f;
    p = p * z + 1.0f / 9360.0f;
    p = p * z - 1.0f / 1320.0f;
    p = p * z + 1.0f / 216.0f;
    p = p * z - 1.0f / 42.0f;
    p = p * z + 0.1f;
    p = p * z - 1.0f / 3.0f;
    p = p * z + 1.0f;
    let near = 1.1283792f * x * p;
    let t = 1.0f / (1.0f + 0.3275911f * a);
    var q = 1.0614054f;
    q = q * t - 1.453152f;
    q = q * t + 1.4214137f;
    q = q * t - 0.28449674f;
    q = q * t + 0.2548296f;
    let far = 1.0f - q * t * exp(-z);
    return select(select(far, -far, x < 0.0f), near, a < 1.0f);
}

// sin(x + turns * pi / 2), within a few ulp of 1 for |x| up to some thousands.
// The built-in functions need only be within 2^-11, and some devices use that.
// x = n * pi / 2 + r by three parts of pi / 2 (Cody and Waite); minimax
// polynomials on [-pi / 4, pi / 4] (Cephes' sinf).
fn sin_turned(x: f32, turns: i32) -> f32 {
    let n = round(x * 0.63661977f);
    let r = ((x - n * 1.5703125f) - n * 4.8375130e-4f) - n * 7.5497900e-8f;
    let z = r * r;
    var s = -1.9515296e-4f;
    s = s * z + 8.3321609e-3f;
    s = s * z - 1.6666655e-1f;
    s = s * z * r + r;
    var c = 2.4433157e-5f;
    c = c * z - 1.3887316e-3f;
    c = c * z + 4.1666646e-2f;
    c = c * z * z - 0.5f * z + 1.0f;
    let quarter = i32(n) + turns;
    let y = select(s, c, (quarter & 1) == 1);
    return select(y, -y, (quarter & 2) == 2);
}

fn sin_f32(x: f32) -> f32 {
    return sin_turned(x, 0);
}

fn cos_f32(x: f32) -> f32 {
    return sin_turned(x, 1);
}

// The 64-bit product of two words as (low, high), by 16-bit halves.
fn multiply_wide(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 65535u;
    let a1 = a >> 16u;
    let b0 = b & 65535u;
    let b1 = b >> 16u;
    let low = a0 * b0;
    // No sum here reaches 2^32: (2^16 - 1)^2 + 2 (2^16 - 1) is 2^32 - 1.
    let middle = a1 * b0 + (low >> 16u);
    let other = a0 * b1 + (middle & 65535u);
    return vec2<u32>((other << 16u) | (low & 65535u), a1 * b1 + (middle >> 16u) + (other >> 16u));
}

// The first word of Philox 4x32-10 (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC '11) under the key (key_low, key_high). The counter
// is the 64-bit index item_offset * per_item + i, the stream and the step.
fn random_bits(
    key_low: u32,
    key_high: u32,
    step: u32,
    item_offset: u32,
    stream: u32,
    per_item: u32,
    i: u32,
) -> u32 {
    let first = multiply_wide(item_offset, per_item);
    let low = first.x + i;
    let high = first.y + select(0u, 1u, low < i);
    var c = vec4<u32>(low, high, stream, step);
    var k = vec2<u32>(key_low, key_high);
    for (var round = 0u; round < 10u; round++) {
        let p0 = multiply_wide(0xD2511F53u, c.x);
        let p1 = multiply_wide(0xCD9E8D57u, c.z);
        c = vec4<u32>(p1.y ^ c.y ^ k.x, p1.x, p0.y ^ c.w ^ k.y, p0.x);
        k = k + vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c.x;
}

// The number of this workgroup where lowering has folded a long row of groups
// into two dimensions.
fn linear_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

