// set_rows - state[index[n], :] = x[n, :]; bits are moved, so I32 and F32 alike
//   x [n, d], strided rows; index [n] i32; state [r, d]
// One thread an element. An index outside the state is left out; of equal indices any one wins.
struct Params { n: u32, d: u32, r: u32, x_offset: u32, x0: u32, index_offset: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> index: array<i32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * groups.x) * 64u + lane;
    let row = i / params.d;
    if (row >= params.n) {
        return;
    }
    let to = index[params.index_offset + row];
    if (to < 0 || u32(to) >= params.r) {
        return;
    }
    state[u32(to) * params.d + i % params.d] = x[params.x_offset + row * params.x0 + i % params.d];
}
