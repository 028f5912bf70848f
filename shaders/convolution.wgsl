// What the convolution kernels share. All have three dimensions, of which
// leading ones may be 1.
//
// Parameters: batch (0), groups (1), channels of a group of the input (2) and
// of the output (3); then for each dimension sizes of the input (4, 5, 6), of
// the output (7, 8, 9), taps of the kernel (10, 11, 12), stride (13, 14, 15),
// padding (16, 17, 18) and dilation (19, 20, 21).

fn triple(first: u32) -> vec3<u32> {
    return vec3<u32>(parameter(first), parameter(first + 1u), parameter(first + 2u));
}

fn volume(sizes: vec3<u32>) -> u32 {
    return sizes.x * sizes.y * sizes.z;
}

// Coordinates z, y, x of a position.
fn coordinates(i: u32, sizes: vec3<u32>) -> vec3<u32> {
    let line = i / sizes.z;
    let sheet = line / sizes.y;
    return vec3<u32>(sheet, line - sheet * sizes.y, i - line * sizes.z);
}

fn position(at: vec3<u32>, sizes: vec3<u32>) -> u32 {
    return (at.x * sizes.y + at.y) * sizes.z + at.z;
}

// Whether coordinates with signs lie within sizes: negative ones are large
// without their sign.
fn within(at: vec3<i32>, sizes: vec3<u32>) -> bool {
    return all(bitcast<vec3<u32>>(at) < sizes);
}
