// What the kernels over the planes of a tensor share: planes have three
// dimensions, of which leading ones may be 1.
//
// Parameters: elements to write, sizes of an input plane (1, 2, 3), of an
// output plane (4, 5, 6), and for pools kernel (7, 8, 9), stride (10, 11, 12)
// and padding (13, 14, 15).

// Plane and coordinates of element i of planes whose sizes are three
// parameters from `sizes` on.
fn place_of(i: u32, sizes: u32) -> vec4<u32> {
    let line = i / parameter(sizes + 2u);
    let sheet = line / parameter(sizes + 1u);
    let plane = sheet / parameter(sizes);
    return vec4<u32>(
        plane,
        sheet - plane * parameter(sizes),
        line - sheet * parameter(sizes + 1u),
        i - line * parameter(sizes + 2u),
    );
}

// Position in a tensor of such planes.
fn position(plane: u32, z: u32, y: u32, x: u32, sizes: u32) -> u32 {
    let sheet = plane * parameter(sizes) + z;
    return (sheet * parameter(sizes + 1u) + y) * parameter(sizes + 2u) + x;
}

// First element along dimension d that window o covers, and one past the last.
fn covered(d: u32, o: u32) -> vec2<u32> {
    let start = o * parameter(10u + d);
    let padding = parameter(13u + d);
    return vec2<u32>(
        max(start, padding) - padding,
        min(start + parameter(7u + d) - padding, parameter(1u + d)),
    );
}

// First window along dimension d that covers element i, and one past the last.
fn covering(d: u32, i: u32) -> vec2<u32> {
    let place = i + parameter(13u + d);
    let kernel = parameter(7u + d);
    let stride = parameter(10u + d);
    var first = 0u;
    if (place >= kernel) {
        first = (place - kernel) / stride + 1u;
    }
    return vec2<u32>(first, min(place / stride + 1u, parameter(4u + d)));
}
