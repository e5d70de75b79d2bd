// matmul_merge - adds up the parts that matmul_store_part left: out[n, row] = sum over p of parts[p, n, row].
//! options
const WG: u32 = 256u;
//! end
struct Params {
    n: u32,
    rows: u32,
    n_part: u32,
    part: u32,       // elements of a part
    out_offset: u32,
    out_stride: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [n, rows] at out_stride

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let i = (id.x + id.y * n_group.x) * WG + local;
    if (i >= params.n * params.rows) {
        return;
    }
    var sum = 0.0;
    for (var p = 0u; p < params.n_part; p++) {
        sum += parts[p * params.part + i];
    }
    out[params.out_offset + i / params.rows * params.out_stride + i % params.rows] = sum;
}
