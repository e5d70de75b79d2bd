// kv_write_q8_0 - cache[slot[n], pos[n] % n_row, h, :] = x[n, h, :] in blocks of 32 int8 with a scale
//   x [n, h, d] f32, strided; slot, pos [n] i32
//   cache, two planes over all rows r = (slot * n_row + row) * h + head: quants i8 [r, d] | scales f16 [r, d / 32],
//   together 34 bytes a block as in a file. Scales of neighbouring rows share words, hence the atomics.
// Rows whose slot is none of the cache's, or whose position is negative, are left out. One thread a block: d = absmax / 127 rounded to f16, q = x / d to nearest even.
struct Params {
    n: u32, h: u32, d32: u32, n_slot: u32, n_row: u32,
    x_offset: u32, x0: u32, x1: u32, slot_offset: u32, pos_offset: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> slot: array<i32>;
@group(0) @binding(2) var<storage, read> pos: array<i32>;
@group(0) @binding(3) var<storage, read_write> cache: array<atomic<u32>>;

//! part half_bits
fn half_bits(value: f32) -> u32 {
    return pack2x16float(vec2<f32>(value, 0.0)) & 0xffffu;
}
//! end

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 64u + lane;
    let i = index % params.d32;
    let head = index / params.d32 % params.h;
    let row = index / params.d32 / params.h;
    if (row >= params.n) {
        return;
    }
    let place = u32(slot[params.slot_offset + row]);
    let last = u32(pos[params.pos_offset + row]);
    if (place >= params.n_slot || last > 0x7fffffffu) {
        return;
    }
    let source = params.x_offset + row * params.x0 + head * params.x1 + i * 32u;
    let at = place * params.n_row + last % params.n_row;
    let block = (at * params.h + head) * params.d32 + i;
    var most = 0.0;
    for (var k = 0u; k < 32u; k++) {
        most = max(most, abs(x[source + k]));
    }
    let bits = half_bits(most / 127.0);
    let scale = unpack2x16float(bits).x;
    for (var k = 0u; k < 8u; k++) {
        var word = 0u;
        for (var b = 0u; b < 4u; b++) {
            var q = 0.0;
            if (scale > 0.0) {
                q = clamp(round(x[source + k * 4u + b] / scale), -127.0, 127.0);
            }
            word |= (bitcast<u32>(i32(q)) & 0xffu) << (b * 8u);
        }
        atomicStore(&cache[block * 8u + k], word);
    }
    let plane = params.n_slot * params.n_row * params.h * params.d32 * 8u;
    let shift = (block & 1u) * 16u;
    atomicAnd(&cache[plane + (block >> 1u)], ~(0xffffu << shift));
    atomicOr(&cache[plane + (block >> 1u)], bits << shift);
}
