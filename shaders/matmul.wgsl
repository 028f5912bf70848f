// What the matmul kernels share: C[b, m, n] = epilogue(A[b, m, k] B[b, k, n]).
//
// Every kernel adds up the products of one result in the order of k with one
// accumulator and `fma`, so that on a device they all give the same bits: the
// tuner's choice among them does not show in the results.
//
// Parameters: m, n, k, batch, first elements of A, B and C, then those of the
// printed epilogue. Workgroups are tiles of the result, along n first, then m,
// then the batch, folded into x and y.

// Which part of the result a workgroup computes.
struct Tile {
    // First row and column.
    row: u32,
    column: u32,
    // First element of the matrices.
    a: u32,
    b: u32,
    out: u32,
    // False for groups past the last tile.
    exists: bool,
}

fn tile_of(group: u32, rows: u32, columns: u32) -> Tile {
    let across = (parameter(1u) + columns - 1u) / columns;
    let down = (parameter(0u) + rows - 1u) / rows;
    let line = group / across;
    let batch = line / down;
    return Tile(
        (line - batch * down) * rows,
        (group - line * across) * columns,
        parameter(4u) + batch * parameter(0u) * parameter(2u),
        parameter(5u) + batch * parameter(2u) * parameter(1u),
        parameter(6u) + batch * parameter(0u) * parameter(1u),
        batch < parameter(3u),
    );
}

// Element [row, k] of a matrix of A.
fn element_a(row: u32, k: u32) -> u32 {
    if (TRANSPOSE_A == 1u) {
        return k * parameter(0u) + row;
    }
    return row * parameter(2u) + k;
}

// Element [k, column] of a matrix of B.
fn element_b(k: u32, column: u32) -> u32 {
    if (TRANSPOSE_B == 1u) {
        return column * parameter(2u) + k;
    }
    return k * parameter(1u) + column;
}

// Stores a result.
fn put(tile: Tile, row: u32, column: u32, sum: f32) {
    let i = tile.out + row * parameter(1u) + column;
    store_out(i, epilogue(i, sum));
}

