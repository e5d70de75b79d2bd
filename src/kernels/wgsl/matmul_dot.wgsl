// matmul_dot - products of a quantised matrix with many vectors: out[n, row] = sum over k of w[row, k] * x[n, k], by
// integer dot products. The vectors come rounded to int8 in blocks of 32 (quantise.wgsl), the weights as int8 too.
//
// Tiles, parts and parameters as in matmul_tile. In workgroup memory a block of 32 is two vec4 of quants and one of
// scales: of a vector (scale, sums of its halves and of both, times the scale); of a row (scale, least), once for each
// half where the type has scales of 16. A block's product is scale * scale' * dot - least' * sum. An invocation has four
// rows and four or eight vectors; sums and rows have names and are no arrays: drivers that do not unroll loops would keep
// an array in memory.
//! options
const WG: u32 = 256u;
const TILE_N: u32 = 64u;
const TILE_M: u32 = 64u;
const TILE_K: u32 = 32u;   // a multiple of 32
const EACH_N: u32 = 4u;    // vectors of an invocation, 4 or 8
const EACH_M: u32 = 4u;    // its rows: 4
const PER: u32 = 1u;       // weight rows for one result (2: gate and up)
const AHEAD: bool = true;  // loads of the next step before the products of this one
//! end
const LANES_M: u32 = TILE_M / EACH_M;
const LANES_N: u32 = TILE_N / EACH_N;
const_assert LANES_M * LANES_N == WG && LANES_M % 8u == 0u && LANES_N % 4u == 0u;
const_assert EACH_N % 4u == 0u && EACH_N <= 8u && EACH_M == 4u;
const COLS: u32 = TILE_M / PER;        // results of a vector in a tile
const BLOCKS: u32 = TILE_K / 32u;
const STRIDE: u32 = (3u * BLOCKS) | 1u; // odd, so that neighbouring rows lie in different banks
const X_COUNT: u32 = TILE_N * BLOCKS;
const W_COUNT: u32 = TILE_M * BLOCKS;
const X_EACH: u32 = (X_COUNT + WG - 1u) / WG;
const W_EACH: u32 = (W_COUNT + WG - 1u) / WG;
const ROUND: i32 = 0x4b400000;         // the bits of 1.5 * 2^23: sums up to 2^22 above it are floats without conversion

struct Params {
    n_x: u32,         // vectors
    x_count: u32,     // vectors in x
    k: u32,           // length of a vector, a multiple of 32
    steps: u32,       // of TILE_K in a part of k; id.z counts the parts
    PART_rows: u32,   // rows of the matrix, and those that are stored here
    PART_stored: u32,
    PART_plane0: u32, PART_plane1: u32, PART_plane2: u32, PART_plane3: u32,
    PART_up0: u32, PART_up1: u32, PART_up2: u32, PART_up3: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>; // i8 [x_count, k] | scale f32, sums i16[2] [x_count, k / 32]

var<workgroup> x_tile: array<vec4<u32>, TILE_N * STRIDE>;
var<workgroup> w_tile: array<vec4<u32>, TILE_M * STRIDE>;
var<private> part_of_k: u32;

//! part place
//! include matmul_place
//! end

//! part reader
//! include read_q8_0
//! end

//! part epilogue
//! include matvec_store
//! end

//! include matmul_rows

struct XBlock { first: vec4<u32>, second: vec4<u32>, scale: vec2<u32> }
struct WBlock { first: PART_chunk, second: PART_chunk } // of both halves; second is of use where they lie in two chunks

fn block_of(step: u32, slot: u32, count: u32) -> u32 {
    return min(step * BLOCKS + slot / count, params.k / 32u - 1u);
}

fn load_x(step: u32, local: u32, rows: ptr<function, array<u32, X_EACH>>, to: ptr<function, array<XBlock, X_EACH>>) {
    for (var i = 0u; i < X_EACH; i++) {
        let slot = i * WG + local;
        if (slot < X_COUNT) {
            let block = (*rows)[i] * (params.k / 32u) + block_of(step, slot, TILE_N);
            let four = x[params.x_count * (params.k / 16u) + block / 2u];
            (*to)[i] = XBlock(x[block * 2u], x[block * 2u + 1u], select(four.xy, four.zw, (block & 1u) != 0u));
        }
    }
}

fn load_w(step: u32, local: u32, rows: ptr<function, array<u32, W_EACH>>, to: ptr<function, array<WBlock, W_EACH>>) {
    for (var i = 0u; i < W_EACH; i++) {
        let slot = i * WG + local;
        if (slot < W_COUNT) {
            let group = block_of(step, slot, TILE_M) * 2u;
            let plane = plane_of(slot % TILE_M / COLS);
            (*to)[i].first = PART_load(plane, (*rows)[i], chunk_of(group));
            if (PART_APART) {
                (*to)[i].second = PART_load(plane, (*rows)[i], chunk_of(group + 1u));
            }
        }
    }
}

// As the tile wants them; zeros for a block behind the end of k.
fn x_scales(b: XBlock, here: bool) -> vec4<u32> {
    let scale = select(0.0, bitcast<f32>(b.scale.x), here);
    let packed = bitcast<i32>(b.scale.y);
    let sums = vec2<i32>((packed << 16u) >> 16u, packed >> 16u);
    return bitcast<vec4<u32>>(scale * vec4<f32>(1.0, f32(sums.x), f32(sums.y), f32(sums.x + sums.y)));
}

fn centred(q: vec4<u32>) -> vec4<u32> { // bytes less ZERO
    if (PART_ZERO == 0) {
        return q;
    }
    let high = vec4<u32>(0x80808080u);
    return ((q | high) - vec4<u32>(u32(PART_ZERO) * 0x01010101u)) ^ high;
}

fn dot16(start: i32, a: vec4<u32>, b: vec4<u32>) -> i32 {
    var sum = start;
    sum += dot4I8Packed(a.x, b.x);
    sum += dot4I8Packed(a.y, b.y);
    sum += dot4I8Packed(a.z, b.z);
    sum += dot4I8Packed(a.w, b.w);
    return sum;
}

fn rounded(sum: i32) -> f32 {
    return bitcast<f32>(sum) - 12582912.0;
}

struct Row { first: vec4<u32>, second: vec4<u32>, scale: vec4<f32> }

fn row_at(m: u32, b: u32) -> Row {
    let at = m * STRIDE + b * 3u;
    return Row(w_tile[at], w_tile[at + 1u], bitcast<vec4<f32>>(w_tile[at + 2u]));
}

fn product(w: Row, x: Row) -> f32 {
    if (PART_PAIRED) {
        let sum = x.scale.x * w.scale.x * rounded(dot16(dot16(ROUND, w.first, x.first), w.second, x.second));
        if (PART_LEAST) {
            return sum - w.scale.y * x.scale.w;
        }
        return sum;
    }
    let sum = x.scale.x * (w.scale.x * rounded(dot16(ROUND, w.first, x.first)) + w.scale.z * rounded(dot16(ROUND, w.second, x.second)));
    if (PART_LEAST) {
        return sum - (w.scale.y * x.scale.y + w.scale.w * x.scale.z);
    }
    return sum;
}

// Vector n with four rows.
fn products(n: u32, b: u32, w0: Row, w1: Row, w2: Row, w3: Row) -> vec4<f32> {
    let at = n * STRIDE + b * 3u;
    let x = Row(x_tile[at], x_tile[at + 1u], bitcast<vec4<f32>>(x_tile[at + 2u]));
    return vec4<f32>(product(w0, x), product(w1, x), product(w2, x), product(w3, x));
}

fn store_one(place: Place, i: u32, row: u32, items: vec2<f32>) {
    if (is_stored(place, row)) {
        PART_store(row, i, items);
    }
}

fn store_four(place: Place, n: u32, row: u32, sums: vec4<f32>) {
    let i = place.first + n;
    if (i >= place.end) {
        return;
    }
    let to = place_out(i);
    if (PER == 1u) {
        store_one(place, to, row, sums.xx);
        store_one(place, to, row + LANES_M, sums.yy);
        store_one(place, to, row + 2u * LANES_M, sums.zz);
        store_one(place, to, row + 3u * LANES_M, sums.ww);
    } else {
        store_one(place, to, row, sums.xz);
        store_one(place, to, row + LANES_M, sums.yw);
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(id.x);
    let col = id.y * COLS;
    part_of_k = id.z;
    if (place.first >= place.end || !tile_is_stored(place, col)) {
        return;
    }
    let m = (local & 7u) + ((local / 32u) % (LANES_M / 8u)) * 8u;
    let n = ((local / 8u) & 3u) + ((local / 32u) / (LANES_M / 8u)) * 4u;
    let first_step = id.z * params.steps;
    let n_step = min((params.k + TILE_K - 1u) / TILE_K, first_step + params.steps);

    var x_row: array<u32, X_EACH>;
    var x_next: array<XBlock, X_EACH>;
    for (var i = 0u; i < X_EACH; i++) {
        x_row[i] = place_x(min(place.first + (i * WG + local) % TILE_N, place.end - 1u));
    }
    var w_row: array<u32, W_EACH>;
    var w_next: array<WBlock, W_EACH>;
    for (var i = 0u; i < W_EACH; i++) {
        w_row[i] = stored_row(place, col + (i * WG + local) % TILE_M % COLS);
    }
    if (AHEAD) {
        load_x(first_step, local, &x_row, &x_next);
        load_w(first_step, local, &w_row, &w_next);
    }
    var sums_0 = mat4x4<f32>(); // column i: vector n + i * LANES_N with rows m, m + LANES_M, ...
    var sums_1 = mat4x4<f32>(); // and vectors from n + 4 * LANES_N
    for (var step = first_step; step < n_step; step++) {
        if (!AHEAD) {
            load_x(step, local, &x_row, &x_next);
            load_w(step, local, &w_row, &w_next);
        }
        for (var i = 0u; i < X_EACH; i++) {
            let slot = i * WG + local;
            if (slot < X_COUNT) {
                let to = slot % TILE_N * STRIDE + slot / TILE_N * 3u;
                x_tile[to] = x_next[i].first;
                x_tile[to + 1u] = x_next[i].second;
                x_tile[to + 2u] = x_scales(x_next[i], step * BLOCKS + slot / TILE_N < params.k / 32u);
            }
        }
        for (var i = 0u; i < W_EACH; i++) {
            let slot = i * WG + local;
            if (slot < W_COUNT) {
                let group = block_of(step, slot, TILE_M) * 2u;
                let to = slot % TILE_M * STRIDE + slot / TILE_M * 3u;
                let c = w_next[i].first;
                let chunk = chunk_of(group);
                w_tile[to] = centred(PART_quants(c, chunk, part_of(group)));
                let scale = PART_scale(c, chunk, part_of(group));
                var d = c;
                if (PART_APART) {
                    d = w_next[i].second;
                }
                let next = chunk_of(group + 1u);
                var scale_next = vec2<f32>(0.0);
                if (!PART_PAIRED) {
                    scale_next = PART_scale(d, next, part_of(group + 1u));
                }
                w_tile[to + 1u] = centred(PART_quants(d, next, part_of(group + 1u)));
                w_tile[to + 2u] = bitcast<vec4<u32>>(vec4<f32>(scale, scale_next));
            }
        }
        workgroupBarrier();
        if (AHEAD && step + 1u < n_step) {
            load_x(step + 1u, local, &x_row, &x_next);
            load_w(step + 1u, local, &w_row, &w_next);
        }
        for (var b = 0u; b < BLOCKS; b++) {
            let w0 = row_at(m, b);
            let w1 = row_at(m + LANES_M, b);
            let w2 = row_at(m + 2u * LANES_M, b);
            let w3 = row_at(m + 3u * LANES_M, b);
            sums_0[0] += products(n, b, w0, w1, w2, w3);
            sums_0[1] += products(n + LANES_N, b, w0, w1, w2, w3);
            sums_0[2] += products(n + 2u * LANES_N, b, w0, w1, w2, w3);
            sums_0[3] += products(n + 3u * LANES_N, b, w0, w1, w2, w3);
            if (EACH_N == 8u) {
                sums_1[0] += products(n + 4u * LANES_N, b, w0, w1, w2, w3);
                sums_1[1] += products(n + 5u * LANES_N, b, w0, w1, w2, w3);
                sums_1[2] += products(n + 6u * LANES_N, b, w0, w1, w2, w3);
                sums_1[3] += products(n + 7u * LANES_N, b, w0, w1, w2, w3);
            }
        }
        workgroupBarrier();
    }
    store_four(place, n, col + m, sums_0[0]);
    store_four(place, n + LANES_N, col + m, sums_0[1]);
    store_four(place, n + 2u * LANES_N, col + m, sums_0[2]);
    store_four(place, n + 3u * LANES_N, col + m, sums_0[3]);
    if (EACH_N == 8u) {
        store_four(place, n + 4u * LANES_N, col + m, sums_1[0]);
        store_four(place, n + 5u * LANES_N, col + m, sums_1[1]);
        store_four(place, n + 6u * LANES_N, col + m, sums_1[2]);
        store_four(place, n + 7u * LANES_N, col + m, sums_1[3]);
    }
}
