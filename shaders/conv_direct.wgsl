// conv_direct: a convolution, or with GRADIENT 1 that of the input's gradient,
// where a group writes so few channels that tiles would be empty.
//
// Mapping: one invocation an element; groups are folded into x and y.
// Moves: each element of what is read once for every element that meets it,
// mostly from caches. Bound by bandwidth for depthwise convolutions.
// Parameters: see convolution_gather.wgsl; then those of the printed epilogue.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * WORKGROUP + lane;
    let to = to_sizes();
    let count = volume(to);
    let channels = to_channels();
    let plane = i / count;
    if (plane >= parameter(0u) * parameter(1u) * channels) {
        return;
    }
    let planes = plane / channels;
    let place = coordinates(i - plane * count, to);
    var stride = vec3<u32>(1u);
    if (GRADIENT == 1u) {
        stride = triple(13u);
    }
    let q = place / stride;
    let axes = axes_of(place - q * stride);
    let base = vec3<i32>(q) * axes.across + axes.base;
    let sizes = from_sizes();
    let part = planes % parameter(1u);
    let weight = part * parameter(2u) * parameter(3u) * volume(triple(10u));
    var sum = 0.0f;
    for (var c = 0u; c < from_channels(); c++) {
        let first = (planes * from_channels() + c) * volume(sizes);
        let weights = weight + weight_of(c, plane - planes * channels, 0u);
        for (var z = 0u; z < axes.taps.x; z++) {
            for (var y = 0u; y < axes.taps.y; y++) {
                for (var x = 0u; x < axes.taps.z; x++) {
                    let j = vec3<u32>(z, y, x);
                    let at = base + vec3<i32>(j) * axes.step;
                    if (within(at, sizes)) {
                        let value = load_from(first + position(vec3<u32>(at), sizes));
                        sum = fma(load_weight(weights + tap_of(axes, j)), value, sum);
                    }
                }
            }
        }
    }
    store_out(i, epilogue(i, sum));
}
