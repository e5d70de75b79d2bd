// weighted_sum - out[n, i] = sum over u of x[n, u, i] * weight[n, u]
//   x [n, u, d] f32, strided; weight [n, u], strided rows; out [n, d]
// One thread an element of out: the rows lie side by side, so neighbours read neighbours.
struct Params { n: u32, u: u32, d: u32, x_offset: u32, x0: u32, x1: u32, w_offset: u32, w0: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 256u + lane;
    let row = index / params.d;
    let i = index % params.d;
    if (row >= params.n) {
        return;
    }
    var sum = 0.0;
    for (var u = 0u; u < params.u; u++) {
        sum += x[params.x_offset + row * params.x0 + u * params.x1 + i] * weight[params.w_offset + row * params.w0 + u];
    }
    out[index] = sum;
}
