// matmul_tile - products of a weight matrix with many vectors: out[n, row] = sum over k of w[row, k] * x[n, k], in f32.
//
// A workgroup makes a tile of TILE_N vectors by TILE_M weight rows. It walks k by TILE_K: each invocation loads its share
// of both (the next step's while it computes), dequantises, puts it into workgroup memory, and multiplies EACH_N vectors
// with EACH_M rows from there. Every weight is dequantised once for TILE_N vectors.
//   reader   as in matvec;   epilogue: PART_store, as in matvec
//   x        x_four: four elements of a vector
//   place    which vectors and which matrix a tile has (experts gather theirs)
//! options
const WG: u32 = 256u;
const TILE_N: u32 = 64u;
const TILE_M: u32 = 64u;
const TILE_K: u32 = 16u;   // a multiple of 16
const EACH_N: u32 = 4u;
const EACH_M: u32 = 4u;
const PER: u32 = 1u;       // weight rows for one result (2: gate and up)
const AHEAD: bool = true;  // loads of the next step before the products of this one
//! end
const LANES_M: u32 = TILE_M / EACH_M;
const LANES_N: u32 = TILE_N / EACH_N;
const_assert LANES_M * LANES_N == WG && LANES_M % 8u == 0u && LANES_N % 4u == 0u && EACH_M % PER == 0u;
const COLS: u32 = TILE_M / PER;      // results of a vector in a tile
const FOURS: u32 = TILE_K / 4u;
const STRIDE: u32 = FOURS + 1u;      // odd, so that neighbouring rows lie in different banks
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

var<workgroup> x_tile: array<vec4<f32>, TILE_N * STRIDE>;
var<workgroup> w_tile: array<vec4<f32>, TILE_M * STRIDE>;
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
            (*to)[i] = PART_load(plane_of(slot % TILE_M / COLS), (*row)[i], chunk_of(group_of(step, slot)));
        }
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

    var x_at: array<u32, X_EACH>;
    var x_next: array<vec4<f32>, X_EACH>;
    for (var i = 0u; i < X_EACH; i++) {
        x_at[i] = params.x_offset + place_x(min(place.first + (i * WG + local) / FOURS, place.end - 1u)) * params.x_stride;
    }
    var w_row: array<u32, W_EACH>;
    var w_next: array<PART_chunk, W_EACH>;
    for (var i = 0u; i < W_EACH; i++) {
        w_row[i] = stored_row(place, col + (i * WG + local) % TILE_M % COLS);
    }
    if (AHEAD) {
        load_x(first_step, local, &x_at, &x_next);
        load_w(first_step, local, &w_row, &w_next);
    }
    var sums: array<f32, EACH_N * EACH_M>;
    for (var step = first_step; step < n_step; step++) {
        if (!AHEAD) {
            load_x(step, local, &x_at, &x_next);
            load_w(step, local, &w_row, &w_next);
        }
        for (var i = 0u; i < X_EACH; i++) {
            let slot = i * WG + local;
            if (slot < X_COUNT) {
                x_tile[slot / FOURS * STRIDE + slot % FOURS] = x_next[i];
            }
        }
        for (var i = 0u; i < W_EACH; i++) {
            let slot = i * WG + local;
            if (slot < W_COUNT) {
                let group = group_of(step, slot);
                let v = PART_values(w_next[i], chunk_of(group), part_of(group));
                let to = slot % TILE_M * STRIDE + slot / TILE_M * 4u;
                w_tile[to] = v[0];
                w_tile[to + 1u] = v[1];
                w_tile[to + 2u] = v[2];
                w_tile[to + 3u] = v[3];
            }
        }
        workgroupBarrier();
        if (AHEAD && step + 1u < n_step) {
            load_x(step + 1u, local, &x_at, &x_next);
            load_w(step + 1u, local, &w_row, &w_next);
        }
        for (var f = 0u; f < FOURS; f++) {
            var a: array<vec4<f32>, EACH_N>;
            for (var i = 0u; i < EACH_N; i++) {
                a[i] = x_tile[(n + i * LANES_N) * STRIDE + f];
            }
            for (var j = 0u; j < EACH_M; j++) {
                let b = w_tile[(m + j * LANES_M) * STRIDE + f];
                for (var i = 0u; i < EACH_N; i++) {
                    sums[i * EACH_M + j] += a[i].x * b.x;
                    sums[i * EACH_M + j] += a[i].y * b.y;
                    sums[i * EACH_M + j] += a[i].z * b.z;
                    sums[i * EACH_M + j] += a[i].w * b.w;
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < EACH_N; i++) {
        let v = place.first + n + i * LANES_N;
        let to = place_out(min(v, place.end - 1u));
        for (var j = 0u; j < EACH_M / PER; j++) {
            let row = col + m + j * LANES_M;
            if (v < place.end && is_stored(place, row)) {
                PART_store(row, to, vec2<f32>(sums[i * EACH_M + j], sums[i * EACH_M + j + EACH_M / PER * (PER - 1u)]));
            }
        }
    }
}
