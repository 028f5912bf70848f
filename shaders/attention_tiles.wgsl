// What the attention kernels share: a tile of ROWS x COLUMNS scores in
// workgroup memory, made from two strips of rows of heads, and products of it
// with a strip. 256 invocations: invocation l has rows l / 16 · 4 … + 3, columns
// l % 16 · 2, + 1 of the scores, and elements l % 16 + 16 · j of a head.
// Exactly 16 KiB of workgroup memory.
// Parameters: batch, queries, keys, heads, heads of keys, bits of the scale.

// Elements of a head that an invocation sums.
const PARTS: u32 = (HEAD + 15u) / 16u;
// Terms of a product brought into workgroup memory at a time.
const STEP: u32 = 16u;
// A score that is not there.
const LOWEST: f32 = -3.4028234e38f;

// [column, row].
var<workgroup> scores_tile: array<f32, ROWS * COLUMNS>;
// [term, row] and [term, column], or [column, element of a head].
var<workgroup> staged: array<f32, 2048>;

// Rows of a head in memory.
struct Strip {
    first: u32,
    step: u32,
    count: u32,
}

struct Sums {
    parts: array<vec4<f32>, PARTS>,
}

fn queries() -> u32 { return parameter(1u); }
fn keys() -> u32 { return parameter(2u); }
fn heads() -> u32 { return parameter(3u); }
fn key_heads() -> u32 { return parameter(4u); }
fn scale() -> f32 { return as_f32(parameter(5u)); }
fn group_size() -> u32 { return heads() / key_heads(); }

fn query_at(item: u32, query: u32, head: u32) -> u32 {
    return ((item * queries() + query) * heads() + head) * HEAD;
}

fn key_at(item: u32, key: u32, head: u32) -> u32 {
    return ((item * keys() + key) * key_heads() + head) * HEAD;
}

fn sees(item: u32, query: u32, key: u32) -> bool {
    if (query >= queries() || key >= keys() || (CAUSAL == 1u && key > query)) {
        return false;
    }
    return load_key_mask(item * keys() + key) != 0;
}

// a · bᵀ: this invocation's two columns of four rows. Strips beyond their ends
// count as 0.
fn product(a: u32, rows: Strip, b: u32, columns: Strip, lane: u32) -> array<vec4<f32>, 2> {
    var s0 = vec4<f32>(0.0f);
    var s1 = vec4<f32>(0.0f);
    for (var k = 0u; k < HEAD; k += STEP) {
        workgroupBarrier();
        let term = lane % STEP;
        for (var row = lane / STEP; row < ROWS; row += 256u / STEP) {
            var value = 0.0f;
            if (row < rows.count && k + term < HEAD) {
                value = element(a, rows.first + row * rows.step + k + term);
            }
            staged[term * ROWS + row] = value;
        }
        for (var column = lane / STEP; column < COLUMNS; column += 256u / STEP) {
            var value = 0.0f;
            if (column < columns.count && k + term < HEAD) {
                value = element(b, columns.first + column * columns.step + k + term);
            }
            staged[STEP * ROWS + term * COLUMNS + column] = value;
        }
        workgroupBarrier();
        for (var j = 0u; j < STEP; j++) {
            let at = j * ROWS + lane / 16u * 4u;
            let x = vec4<f32>(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
            let to = STEP * ROWS + j * COLUMNS + lane % 16u * 2u;
            s0 = fma(x, vec4<f32>(staged[to]), s0);
            s1 = fma(x, vec4<f32>(staged[to + 1u]), s1);
        }
    }
    return array<vec4<f32>, 2>(s0, s1);
}

fn store_scores(scores: array<vec4<f32>, 2>, lane: u32) {
    var s = scores;
    for (var c = 0u; c < 2u; c++) {
        let at = (lane % 16u * 2u + c) * ROWS + lane / 16u * 4u;
        for (var r = 0u; r < 4u; r++) {
            scores_tile[at + r] = s[c][r];
        }
    }
}

// This invocation's four rows of a column.
fn quad_of_scores(column: u32, lane: u32) -> vec4<f32> {
    let at = column * ROWS + lane / 16u * 4u;
    return vec4<f32>(
        scores_tile[at],
        scores_tile[at + 1u],
        scores_tile[at + 2u],
        scores_tile[at + 3u],
    );
}

// Adds scores · rows of the strip `from`.
fn accumulate(sums: ptr<function, Sums>, b: u32, from_strip: Strip, lane: u32) {
    for (var k = 0u; k < COLUMNS; k += STEP) {
        workgroupBarrier();
        let element_of_head = lane % 16u;
        for (var j = 0u; j < PARTS; j++) {
            let i = j * 16u + element_of_head;
            let term = k + lane / 16u;
            var value = 0.0f;
            if (term < from_strip.count && i < HEAD) {
                value = element(b, from_strip.first + term * from_strip.step + i);
            }
            staged[lane / 16u * (16u * PARTS) + i] = value;
        }
        workgroupBarrier();
        for (var term = 0u; term < STEP; term++) {
            let x = quad_of_scores(k + term, lane);
            for (var j = 0u; j < PARTS; j++) {
                let y = staged[term * (16u * PARTS) + j * 16u + element_of_head];
                (*sums).parts[j] = fma(x, vec4<f32>(y), (*sums).parts[j]);
            }
        }
    }
}
