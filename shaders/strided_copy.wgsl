// strided_copy: copies words between two strided places: permute, slice, pad
// and concat.
//
// Mapping: one invocation an element of the common index space, the last
// dimension fastest; groups are folded into x and y.
// Moves: each element once in, once out. Bound by bandwidth where the last
// dimension has stride 1 on both sides, else by the cache lines that the
// strided side touches.
// Parameters: elements, rank, first element read, first written, then sizes,
// source strides and destination strides.
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * WORKGROUP + lane;
    if (i >= parameter(0u)) {
        return;
    }
    let rank = parameter(1u);
    var from_index = parameter(2u);
    var to_index = parameter(3u);
    var rest = i;
    for (var d = rank; d > 0u; d--) {
        let size = parameter(3u + d);
        let quotient = rest / size;
        let coordinate = rest - quotient * size;
        rest = quotient;
        from_index += coordinate * parameter(3u + rank + d);
        to_index += coordinate * parameter(3u + 2u * rank + d);
    }
    store_destination(to_index, load_source(from_index));
}
