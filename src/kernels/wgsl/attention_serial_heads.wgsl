// attention_serial_heads - part `start` of attention_serial: queries and the row's own key and value straight from the
// products, before their norms and rotations: q and k = rope(rms(x) * w), v = rms(x).
//   q [n, H, d]; norms: rows w_q [d], w_k [d] of F32 weights; angles [n, 2, d / 2] (cos, sin)
//   key, value [n, h, d] (part `fresh`; the value may be the raw key)
//   work [n, H, n_split, 2, d]: a thread's own query and key
// The last piece of the first query head of a kv head stores key and value into the caches.
//! options
const FRESH: bool = true;
//! end
//! param w_q_at: u32
//! param w_k_at: u32
//! param angles_offset: u32
//! param eps: f32
@group(0) @binding(7) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> angles: array<vec4<f32>>;
@group(0) @binding(9) var<storage, read_write> work: array<vec4<f32>>;

const HALF4: u32 = D4 / 2u;

var<private> query_place: u32; // in `work`

fn rotated(row: u32, w: u32, to: u32, low: u32, a: vec4<f32>, b: vec4<f32>) {
    let turn = params.angles_offset + row * 2u * HALF4 + low;
    let c = angles[turn];
    let s = angles[turn + HALF4];
    let u = a * norms[w + low];
    let v = b * norms[w + low + HALF4];
    work[to + low] = u * c - v * s;
    work[to + low + HALF4] = u * s + v * c;
}

fn factor_of(sum: vec4<f32>) -> f32 {
    return inverseSqrt((sum.x + sum.y + sum.z + sum.w) / f32(4u * D4) + params.eps);
}

//! part fresh
@group(0) @binding(10) var<storage, read> key: array<vec4<f32>>;
@group(0) @binding(11) var<storage, read> value: array<vec4<f32>>;

var<private> fresh_source: u32;
var<private> value_factor: f32;

fn fresh_make(row: u32, head: u32) {
    let kv = head * params.n_kv / params.n_head;
    fresh_source = (row * params.n_kv + kv) * D4;
    var k_sum = vec4<f32>(0.0);
    var v_sum = vec4<f32>(0.0);
    for (var i = 0u; i < D4; i++) {
        let k = key[fresh_source + i];
        let v = value[fresh_source + i];
        k_sum += k * k;
        v_sum += v * v;
    }
    value_factor = factor_of(v_sum);
    let factor = factor_of(k_sum);
    for (var i = 0u; i < HALF4; i++) {
        rotated(row, params.w_k_at, query_place + D4, i, key[fresh_source + i] * factor, key[fresh_source + i + HALF4] * factor);
    }
    if (head * params.n_kv % params.n_head < params.n_kv) {
        let at = u32(slot[params.slot_offset + row]) * params.n_row + u32(pos[params.pos_offset + row]) % params.n_row;
        caches_store((at * params.n_kv + kv) * D4, 0u);
    }
}

fn fresh_key(i: u32) -> vec4<f32> {
    return work[query_place + D4 + i];
}

fn fresh_value(i: u32) -> vec4<f32> {
    return value[fresh_source + i] * value_factor;
}
//! end

fn start(row: u32, head: u32, place: u32, last_piece: bool) {
    let source = params.q_offset + row * params.q0 + head * params.q1;
    query_place = place * 2u * D4;
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < D4; i++) {
        sum += q[source + i] * q[source + i];
    }
    let factor = factor_of(sum);
    for (var i = 0u; i < HALF4; i++) {
        rotated(row, params.w_q_at, query_place, i, q[source + i] * factor, q[source + i + HALF4] * factor);
    }
    if (last_piece) {
        fresh_make(row, head);
    }
}

fn query_at(i: u32) -> vec4<f32> {
    return work[query_place + i];
}
