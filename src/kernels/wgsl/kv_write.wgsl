// kv_write - cache[slot[n], pos[n] % n_row, h, :] = x[n, h, :], rounded to the cache's type
//   x [n, h, d] f32, strided; slot, pos [n] i32; cache [n_slot, n_row, h, d]
// One thread four elements of a head. Rows whose slot is none of the cache's, or whose position is negative, are left out.
struct Params {
    n: u32, h: u32, d4: u32, n_slot: u32, n_row: u32,
    x_offset: u32, x0: u32, x1: u32, slot_offset: u32, pos_offset: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> slot: array<i32>;
@group(0) @binding(2) var<storage, read> pos: array<i32>;

//! part cache_store
@group(0) @binding(3) var<storage, read_write> cache: array<vec4<f32>>;

fn cache_store(at: u32, value: vec4<f32>) { // at: in fours
    cache[at] = value;
}
//! end

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 64u + lane;
    let i = index % params.d4;
    let head = index / params.d4 % params.h;
    let row = index / params.d4 / params.h;
    if (row >= params.n) {
        return;
    }
    let place = u32(slot[params.slot_offset + row]);
    let last = u32(pos[params.pos_offset + row]);
    if (place >= params.n_slot || last > 0x7fffffffu) {
        return;
    }
    let source = params.x_offset + row * params.x0 + head * params.x1 + i * 4u;
    let at = place * params.n_row + last % params.n_row;
    cache_store((at * params.h + head) * params.d4 + i, vec4<f32>(x[source], x[source + 1u], x[source + 2u], x[source + 3u]));
}
