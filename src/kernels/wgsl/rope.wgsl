// rope - split-half rotation: (u, v) = (x[i], x[i + d/2]) -> (u cos - v sin, u sin + v cos)
//   x [n, h, d] f32, strided; angles [n, 2, d/2] f32: rows of cos and of sin, made on the host; out [n, h, d]
// One thread a pair.
struct Params { n: u32, h: u32, half: u32, x_offset: u32, x0: u32, x1: u32, a_offset: u32, a0: u32, a1: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> angles: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 256u + lane;
    let i = index % params.half;
    let head = index / params.half;
    let row = head / params.h;
    if (row >= params.n) {
        return;
    }
    let source = params.x_offset + row * params.x0 + head % params.h * params.x1 + i;
    let turn = params.a_offset + row * params.a0 + i;
    let c = angles[turn];
    let s = angles[turn + params.a1];
    let u = x[source];
    let v = x[source + params.half];
    let to = head * 2u * params.half + i;
    out[to] = u * c - v * s;
    out[to + params.half] = u * s + v * c;
}
