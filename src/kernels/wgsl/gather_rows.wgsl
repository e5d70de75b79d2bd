// Rows of a table by index, times a constant: out[n, i] = factor * table[ids[n], i]. One invocation a chunk of the row, or
// four elements of one: there are few rows at a time, and little to execute is then what counts.
// A table in several shards: one dispatch each, which writes the rows that it has. An id outside the table takes row 0.
//! options
const WG: u32 = 64u;
const WHOLE: bool = true; // a chunk
//! end
struct Params {
    n: u32,         // rows wanted
    n_row: u32,     // of the whole table
    first: u32,     // row where this shard begins
    count: u32,     // its rows
    ids_offset: u32,
    out_offset: u32,
    out_stride: u32,
    plane0: u32,
    plane1: u32,
    plane2: u32,
    plane3: u32,
    factor: f32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;     // the table's shard
@group(0) @binding(1) var<storage, read> ids: array<i32>;               // [n]
@group(0) @binding(2) var<storage, read_write> out: array<f32>;         // [n, k] at out_stride

//! part reader
//! include read_f32_any
//! end

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let n_chunk = (params.PART_k + (1u << PART_SHIFT) - 1u) >> PART_SHIFT;
    let per = select(PART_GROUPS * 4u, 1u, WHOLE);
    let i = (group.x + group.y * n_group.x) * WG + local;
    let n = i / (n_chunk * per);
    if (n >= params.n) {
        return;
    }
    let id = u32(ids[params.ids_offset + n]);
    let row = select(0u, id, id < params.n_row) - params.first;
    if (row >= params.count) { // of another shard, also where the subtraction wrapped
        return;
    }
    let chunk = i / per % n_chunk;
    let c = PART_load(vec4<u32>(params.plane0, params.plane1, params.plane2, params.plane3), row, chunk);
    let to = params.out_offset + n * params.out_stride;
    if (WHOLE) {
        for (var g = 0u; g < PART_GROUPS; g++) {
            let at = PART_group(chunk, g) * 16u;
            let v = PART_values(c, chunk, g);
            for (var j = 0u; j < 16u; j++) {
                if (at + j < params.PART_k) {
                    out[to + at + j] = params.factor * v[j / 4u][j % 4u];
                }
            }
        }
    } else {
        let g = i % per / 4u;
        let v = PART_values(c, chunk, g);
        let four = select(select(v[0], v[1], i % 2u == 1u), select(v[2], v[3], i % 2u == 1u), i % 4u >= 2u) * params.factor;
        let at = PART_group(chunk, g) * 16u + i % 4u * 4u;
        for (var j = 0u; j < 4u; j++) {
            if (at + j < params.PART_k) {
                out[to + at + j] = four[j];
            }
        }
    }
}
