// conv_weight_gradient_direct: the same where a group writes so few channels
// that tiles would be empty.
//
// Mapping: a workgroup an element of the weight; its invocations walk all
// windows of all items side by side, and their sums are added up in a tree.
// Moves: input and gradient once for each element of the weight that meets
// them, mostly from caches. Bound by bandwidth.
// Parameters: see convolution.wgsl.
var<workgroup> partial: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let kernel = triple(10u);
    let taps = volume(kernel);
    let element = linear_group(group, groups);
    let pair = element / taps;
    let row = pair / parameter(2u);
    let channels = parameter(1u) * parameter(3u);
    if (row >= channels) {
        return;
    }
    let part = row / parameter(3u);
    let channel = part * parameter(2u) + pair - row * parameter(2u);
    let tap = coordinates(element - pair * taps, kernel) * triple(19u);
    let base = vec3<i32>(tap) - vec3<i32>(triple(16u));
    let sizes = triple(4u);
    let output = triple(7u);
    let plane = volume(output);
    var sum = 0.0f;
    for (var window = lane; window < parameter(0u) * plane; window += WORKGROUP) {
        let item = window / plane;
        let o = window - item * plane;
        let at = base + vec3<i32>(coordinates(o, output) * triple(13u));
        if (within(at, sizes)) {
            let input = (item * parameter(1u) * parameter(2u) + channel) * volume(sizes);
            let x = load_x(input + position(vec3<u32>(at), sizes));
            sum = fma(load_gradient((item * channels + row) * plane + o), x, sum);
        }
    }
    partial[lane] = sum;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            partial[lane] += partial[lane + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        store_out(element, partial[0]);
    }
}
