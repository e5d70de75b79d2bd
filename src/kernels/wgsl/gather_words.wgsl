// Rows of 32-bit words by index, bits unchanged: out[n, i] = table[ids[n], i]. An id outside the table takes row 0;
// a table without rows gives zeros.
//! options
const WG: u32 = 64u;
//! end
struct Params {
    n: u32,     // rows wanted
    n_row: u32, // of the table
    d: u32,     // words of a row
    table_offset: u32,
    table_stride: u32,
    ids_offset: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> table: array<u32>;     // [n_row, d] at table_stride
@group(0) @binding(1) var<storage, read> ids: array<i32>;       // [n]
@group(0) @binding(2) var<storage, read_write> out: array<u32>; // [n, d]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let i = (group.x + group.y * n_group.x) * WG + local;
    let n = i / params.d;
    if (n >= params.n) {
        return;
    }
    let id = u32(ids[params.ids_offset + n]);
    let row = select(0u, id, id < params.n_row);
    let word = table[params.table_offset + row * params.table_stride + i % params.d];
    out[i] = select(0u, word, params.n_row > 0u);
}
