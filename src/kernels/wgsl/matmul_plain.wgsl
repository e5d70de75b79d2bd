// matmul_plain - products of a weight matrix with many vectors, in f32, without workgroup memory or barriers: for
// software devices, where those cost more than they save. Each invocation makes EACH_N vectors by EACH_M rows straight
// from the buffers; neighbours take neighbouring rows. Parts and parameters as in matmul_tile.
//! options
const WG: u32 = 32u;
const TILE_N: u32 = 4u;    // what one invocation makes
const EACH_M: u32 = 4u;
const PER: u32 = 1u;       // weight rows for one result (2: gate and up)
//! end
const LANES_M: u32 = WG;
const TILE_M: u32 = WG * EACH_M;
const COLS: u32 = TILE_M / PER;

struct Params {
    n_x: u32,         // vectors
    k: u32,           // length of a vector
    x_stride: u32,    // from vector to vector, elements
    x_offset: u32,    // of the first
    PART_rows: u32,   // rows of the matrix, and those that are stored here
    PART_stored: u32,
    PART_plane0: u32, PART_plane1: u32, PART_plane2: u32, PART_plane3: u32,
    PART_up0: u32, PART_up1: u32, PART_up2: u32, PART_up3: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;

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

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(id.x);
    let col = id.y * COLS;
    if (place.first >= place.end || !tile_is_stored(place, col)) {
        return;
    }
    var x_at: array<u32, TILE_N>;
    for (var i = 0u; i < TILE_N; i++) {
        x_at[i] = params.x_offset + place_x(min(place.first + i, place.end - 1u)) * params.x_stride;
    }
    var sums: array<f32, TILE_N * EACH_M>;
    let n_chunk = (params.k + (1u << PART_SHIFT) - 1u) >> PART_SHIFT;
    for (var chunk = 0u; chunk < n_chunk; chunk++) {
        var c: array<PART_chunk, EACH_M>;
        for (var j = 0u; j < EACH_M; j++) {
            c[j] = PART_load(plane_of(j / (EACH_M / PER)), stored_row(place, col + (local + j * WG) % COLS), chunk);
        }
        for (var g = 0u; g < PART_GROUPS; g++) {
            var w: array<mat4x4<f32>, EACH_M>;
            for (var j = 0u; j < EACH_M; j++) {
                w[j] = PART_values(c[j], chunk, g);
            }
            let f = PART_group(chunk, g) * 4u;
            for (var i = 0u; i < TILE_N; i++) {
                let a = mat4x4<f32>(x_four(x_at[i], f), x_four(x_at[i], f + 1u), x_four(x_at[i], f + 2u), x_four(x_at[i], f + 3u));
                for (var j = 0u; j < EACH_M; j++) {
                    sums[i * EACH_M + j] += dot(a[0], w[j][0]) + dot(a[1], w[j][1]) + dot(a[2], w[j][2]) + dot(a[3], w[j][3]);
                }
            }
        }
    }
    for (var i = 0u; i < TILE_N; i++) {
        let to = place_out(min(place.first + i, place.end - 1u));
        for (var j = 0u; j < EACH_M / PER; j++) {
            let row = col + local + j * WG;
            if (place.first + i < place.end && is_stored(place, row)) {
                PART_store(row, to,
                    vec2<f32>(sums[i * EACH_M + j], sums[i * EACH_M + j + EACH_M / PER * (PER - 1u)]));
            }
        }
    }
}
