// matmul_tile - products of a weight matrix with many vectors: out[n, row] = sum over k of w[row, k] * x[n, k], in f32.
//
// A workgroup makes a tile of TILE_N vectors by TILE_M weight rows. It walks k by TILE_K: each invocation loads its share
// of both (the next step's while it computes), dequantises, puts it into workgroup memory with k outermost, and there
// takes four or eight vectors and rows for each k. Every weight is dequantised once for TILE_N vectors. Sums are matrices
// with names and no array: drivers that do not unroll loops would keep an array in memory.
//   reader   as in matvec;   epilogue: PART_store, as in matvec
//   x        x_four: four elements of a vector
//   place    which vectors and which matrix a tile has (experts gather theirs)
//! options
const WG: u32 = 256u;
const TILE_N: u32 = 64u;
const TILE_M: u32 = 64u;
const TILE_K: u32 = 16u;   // a multiple of 16
const EACH_N: u32 = 4u;    // of an invocation, 4 or 8: the second four half a tile away
const EACH_M: u32 = 4u;
const PER: u32 = 1u;       // weight rows for one result (2: gate and up)
const AHEAD: bool = true;  // loads of the next step before the products of this one
//! end
const LANES_M: u32 = TILE_M / EACH_M;
const LANES_N: u32 = TILE_N / EACH_N;
const_assert LANES_M * LANES_N == WG && LANES_M % 8u == 0u && LANES_N % 4u == 0u;
const_assert EACH_N % 4u == 0u && EACH_N <= 8u && EACH_M % 4u == 0u && EACH_M <= 8u;
const COLS: u32 = TILE_M / PER;      // results of a vector in a tile
const FOURS: u32 = TILE_K / 4u;
const STRIDE_N: u32 = TILE_N / 4u + 1u; // fours from k to k
const STRIDE_M: u32 = TILE_M / 4u + 1u;
const X_COUNT: u32 = TILE_N * FOURS; // loads of four elements
const W_COUNT: u32 = TILE_M * (TILE_K / 16u);
const X_EACH: u32 = (X_COUNT + WG - 1u) / WG;
const W_EACH: u32 = (W_COUNT + WG - 1u) / WG;

struct Params {
    n_x: u32,         // vectors
    k: u32,           // length of a vector
    x_stride: u32,    // from vector to vector, elements
    x_offset: u32,    // of the first
    steps: u32,       // of TILE_K in a part of k; id.z counts the parts
    PART_rows: u32,   // rows of the matrix, and those that are stored here
    PART_stored: u32,
    PART_plane0: u32, PART_plane1: u32, PART_plane2: u32, PART_plane3: u32,
    PART_up0: u32, PART_up1: u32, PART_up2: u32, PART_up3: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;

var<workgroup> x_tile: array<vec4<f32>, TILE_K * STRIDE_N>; // [k][n / 4]
var<workgroup> w_tile: array<vec4<f32>, TILE_K * STRIDE_M>; // [k][row / 4]
var<private> part_of_k: u32;

//! part x
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [n_x, k], rows at x_stride, k a multiple of 4

fn x_four(at: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3 of the vector that begins at `at`
    return select(vec4<f32>(0.0), x[at / 4u + min(i, params.k / 4u - 1u)], i * 4u < params.k);
}
//! end

//! part place
//! include matmul_place
//! end

//! part reader
//! include read_f32
//! end

//! part epilogue
//! include matvec_store
//! end

//! include matmul_rows

fn group_of(step: u32, slot: u32) -> u32 {
    return min(step * (TILE_K / 16u) + slot / TILE_M, (params.k + 15u) / 16u - 1u);
}

fn load_x(step: u32, local: u32, at: ptr<function, array<u32, X_EACH>>, to: ptr<function, array<vec4<f32>, X_EACH>>) {
    for (var i = 0u; i < X_EACH; i++) {
        let slot = i * WG + local;
        if (slot < X_COUNT) {
            (*to)[i] = x_four((*at)[i], step * FOURS + slot % FOURS);
        }
    }
}

fn load_w(step: u32, local: u32, row: ptr<function, array<u32, W_EACH>>, to: ptr<function, array<PART_chunk, W_EACH>>) {
    for (var i = 0u; i < W_EACH; i++) {
        let slot = i * WG + local;
        if (slot < W_COUNT) {
            (*to)[i] = PART_load(plane_of(up_of(slot % TILE_M)), (*row)[i], chunk_of(group_of(step, slot)));
        }
    }
}

// Rows of the tile go by fours; with PER 2 a four is two rows of gate and the same two of up.
fn col_of(row: u32) -> u32 {
    if (PER == 1u) {
        return row;
    }
    return row / 4u * 2u + row % 2u;
}

fn up_of(row: u32) -> u32 {
    return select(0u, row / 2u % 2u, PER == 2u);
}

fn put_w(k: u32, row: u32, v: vec4<f32>) {
    let to = k * STRIDE_M + row / 4u;
    w_tile[to][row % 4u] = v.x;
    w_tile[to + STRIDE_M][row % 4u] = v.y;
    w_tile[to + 2u * STRIDE_M][row % 4u] = v.z;
    w_tile[to + 3u * STRIDE_M][row % 4u] = v.w;
}

fn put_x(k: u32, n: u32, v: vec4<f32>) {
    let to = k * STRIDE_N + n / 4u;
    x_tile[to][n % 4u] = v.x;
    x_tile[to + STRIDE_N][n % 4u] = v.y;
    x_tile[to + 2u * STRIDE_N][n % 4u] = v.z;
    x_tile[to + 3u * STRIDE_N][n % 4u] = v.w;
}

// Column i: vector i with four rows.
fn outer(sums: mat4x4<f32>, a: vec4<f32>, b: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(sums[0] + a.x * b, sums[1] + a.y * b, sums[2] + a.z * b, sums[3] + a.w * b);
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
        store_one(place, to, row + 1u, sums.yy);
        store_one(place, to, row + 2u, sums.zz);
        store_one(place, to, row + 3u, sums.ww);
    } else {
        store_one(place, to, row, sums.xz);
        store_one(place, to, row + 1u, sums.yw);
    }
}

fn store_sums(place: Place, n: u32, row: u32, sums: mat4x4<f32>) {
    store_four(place, n, row, sums[0]);
    store_four(place, n + 1u, row, sums[1]);
    store_four(place, n + 2u, row, sums[2]);
    store_four(place, n + 3u, row, sums[3]);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(id.x);
    let col = id.y * COLS;
    part_of_k = id.z;
    if (place.first >= place.end || !tile_is_stored(place, col)) {
        return;
    }
    let m = (local & 7u) + ((local / 32u) % (LANES_M / 8u)) * 8u; // fours of rows, of vectors
    let n = ((local / 8u) & 3u) + ((local / 32u) / (LANES_M / 8u)) * 4u;
    let first_step = id.z * params.steps;
    let n_step = min((params.k + TILE_K - 1u) / TILE_K, first_step + params.steps);

    var x_at: array<u32, X_EACH>;
    var x_next: array<vec4<f32>, X_EACH>;
    for (var i = 0u; i < X_EACH; i++) {
        x_at[i] = params.x_offset + place_x(min(place.first + (i * WG + local) / FOURS, place.end - 1u)) * params.x_stride;
    }
    var w_row: array<u32, W_EACH>;
    var w_next: array<PART_chunk, W_EACH>;
    for (var i = 0u; i < W_EACH; i++) {
        w_row[i] = stored_row(place, col + col_of((i * WG + local) % TILE_M));
    }
    if (AHEAD) {
        load_x(first_step, local, &x_at, &x_next);
        load_w(first_step, local, &w_row, &w_next);
    }
    var sums_00 = mat4x4<f32>(); // first four vectors, first four rows
    var sums_01 = mat4x4<f32>();
    var sums_10 = mat4x4<f32>();
    var sums_11 = mat4x4<f32>();
    for (var step = first_step; step < n_step; step++) {
        if (!AHEAD) {
            load_x(step, local, &x_at, &x_next);
            load_w(step, local, &w_row, &w_next);
        }
        for (var i = 0u; i < X_EACH; i++) {
            let slot = i * WG + local;
            if (slot < X_COUNT) {
                put_x(slot % FOURS * 4u, slot / FOURS, x_next[i]);
            }
        }
        for (var i = 0u; i < W_EACH; i++) {
            let slot = i * WG + local;
            if (slot < W_COUNT) {
                let group = group_of(step, slot);
                let v = PART_values(w_next[i], chunk_of(group), part_of(group));
                let k = slot / TILE_M * 16u;
                put_w(k, slot % TILE_M, v[0]);
                put_w(k + 4u, slot % TILE_M, v[1]);
                put_w(k + 8u, slot % TILE_M, v[2]);
                put_w(k + 12u, slot % TILE_M, v[3]);
            }
        }
        workgroupBarrier();
        if (AHEAD && step + 1u < n_step) {
            load_x(step + 1u, local, &x_at, &x_next);
            load_w(step + 1u, local, &w_row, &w_next);
        }
        for (var k = 0u; k < TILE_K; k++) {
            let a0 = x_tile[k * STRIDE_N + n];
            let b0 = w_tile[k * STRIDE_M + m];
            sums_00 = outer(sums_00, a0, b0);
            if (EACH_N == 8u) {
                let a1 = x_tile[k * STRIDE_N + n + LANES_N];
                sums_10 = outer(sums_10, a1, b0);
            }
            if (EACH_M == 8u) {
                let b1 = w_tile[k * STRIDE_M + m + LANES_M];
                sums_01 = outer(sums_01, a0, b1);
                if (EACH_N == 8u) {
                    let a1 = x_tile[k * STRIDE_N + n + LANES_N];
                    sums_11 = outer(sums_11, a1, b1);
                }
            }
        }
        workgroupBarrier();
    }
    let row = col + m * (4u / PER);
    store_sums(place, n * 4u, row, sums_00);
    if (EACH_N == 8u) {
        store_sums(place, (n + LANES_N) * 4u, row, sums_10);
    }
    if (EACH_M == 8u) {
        store_sums(place, n * 4u, row + LANES_M * (4u / PER), sums_01);
        if (EACH_N == 8u) {
            store_sums(place, (n + LANES_N) * 4u, row + LANES_M * (4u / PER), sums_11);
        }
    }
}
