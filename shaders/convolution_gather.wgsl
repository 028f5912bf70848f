// How an element of the output of conv (GRADIENT 0) or of conv_input_gradient
// (GRADIENT 1) finds what it meets.
//
// Parameters, after those of convolution.wgsl: for each dimension after how
// many taps an element of the gradient meets one again (22, 23, 24).

// Along each dimension the q-th element of a class meets with its j-th tap
// the element q * across + base + j * step; that tap is tap + j * period.
struct Axes {
    base: vec3<i32>,
    step: vec3<i32>,
    across: vec3<i32>,
    tap: vec3<u32>,
    period: vec3<u32>,
    // Taps that meet anything at all but padding.
    taps: vec3<u32>,
}

// The axes for the class of elements whose coordinates leave this residue by
// the stride; forward all are one class.
fn axes_of(residue: vec3<u32>) -> Axes {
    let kernel = triple(10u);
    if (GRADIENT == 0u) {
        return Axes(
            -vec3<i32>(triple(16u)),
            vec3<i32>(triple(19u)),
            vec3<i32>(triple(13u)),
            vec3<u32>(),
            vec3<u32>(1u),
            kernel,
        );
    }
    let stride = vec3<i32>(triple(13u));
    let dilation = vec3<i32>(triple(19u));
    let period = triple(22u);
    let place = vec3<i32>(residue + triple(16u));
    var axes = Axes(
        vec3<i32>(),
        vec3<i32>(),
        vec3<i32>(1),
        vec3<u32>(),
        period,
        vec3<u32>(),
    );
    for (var d = 0u; d < 3u; d++) {
        let end = min(period[d], kernel[d]);
        var first = 0u;
        while (first < end && (place[d] - i32(first) * dilation[d]) % stride[d] != 0) {
            first++;
        }
        if (first < end) {
            axes.tap[d] = first;
            axes.taps[d] = (kernel[d] - first + period[d] - 1u) / period[d];
            axes.base[d] = (place[d] - i32(first) * dilation[d]) / stride[d];
            // Divides without remainder: period * dilation is a multiple of
            // the stride. With one tap it is not needed, and may be large.
            if (axes.taps[d] > 1u) {
                axes.step[d] = -(i32(period[d]) * dilation[d] / stride[d]);
            }
        }
    }
    return axes;
}

// Sizes and channels of what is read (from) and of what is written (to).
fn from_sizes() -> vec3<u32> {
    return triple(4u + 3u * GRADIENT);
}

fn to_sizes() -> vec3<u32> {
    return triple(7u - 3u * GRADIENT);
}

fn from_channels() -> u32 {
    return parameter(2u + GRADIENT);
}

fn to_channels() -> u32 {
    return parameter(3u - GRADIENT);
}

// The tap of the kernel that is the class's tap j.
fn tap_of(axes: Axes, j: vec3<u32>) -> u32 {
    return position(axes.tap + j * axes.period, triple(10u));
}

// Position in a group's weight: of the channel read, the one written, the tap.
fn weight_of(read: u32, written: u32, tap: u32) -> u32 {
    let taps = volume(triple(10u));
    if (GRADIENT == 1u) {
        return (read * parameter(2u) + written) * taps + tap;
    }
    return (written * parameter(2u) + read) * taps + tap;
}
