// attention_lanes_heads - part `start` of attention_lanes and attention_far: queries and the row's own key and value straight from the
// products, before their norms and rotations: q and k = rope(rms(x) * w), v = rms(x).
//   q [n, H, d]; norms: rows w_q [d], w_k [d] of F32 weights; angles [n, 2, d / 2] (cos, sin)
//   key, value [n, h, d] (part `fresh`; the value may be the raw key)
// LINE_LANES neighbours make a line: a query head, and in the first piece k or v. Its loads depend on nothing, so they go out
// before the kernel knows where the keys lie. The first block of a kv head stores k and v into the caches.
//! options
const FRESH: bool = true;
//! end
//! param w_q_at: u32
//! param w_k_at: u32
//! param angles_offset: u32
//! param eps: f32
@group(0) @binding(7) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> angles: array<vec4<f32>>;

//! part fresh
@group(0) @binding(9) var<storage, read> key: array<vec4<f32>>;
@group(0) @binding(10) var<storage, read> value: array<vec4<f32>>;

fn fresh_load(line: u32, at: u32) -> vec4<f32> {
    if (line == HEADS) {
        return key[at];
    }
    return value[at];
}

fn fresh_key(i: u32) -> vec4<f32> {
    return memory[line_place(HEADS, i)];
}

fn fresh_value(i: u32) -> vec4<f32> {
    return memory[line_place(HEADS + 1u, i)];
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
    let at = u32(slot[params.slot_offset + row]) * params.n_row + u32(pos[params.pos_offset + row]) % params.n_row;
    caches_store((at * params.n_kv + kv) * D4, lane);
}
//! end

const HALF4: u32 = D4 / 2u;

var<private> low: array<vec4<f32>, EIGHTS>;    // of the group's line: fours lane, lane + LINE_LANES.. of its first half
var<private> high: array<vec4<f32>, EIGHTS>;   // the same of its second half
var<private> w_low: array<vec4<f32>, EIGHTS>;
var<private> w_high: array<vec4<f32>, EIGHTS>;
var<private> cosine: array<vec4<f32>, EIGHTS>;
var<private> sine: array<vec4<f32>, EIGHTS>;
var<private> line_is: bool;

fn start_load(row: u32, first_head: u32, first_piece: bool, member: u32, lane: u32) {
    let kv = first_head * params.n_kv / params.n_head;
    let w = select(params.w_k_at, params.w_q_at, member < HEADS);
    let turn = params.angles_offset + row * D4;
    line_is = member < select(HEADS, HEADS + 2u, first_piece);
    for (var c = 0u; c < EIGHTS; c++) {
        let i = c * LINE_LANES + lane;
        low[c] = vec4<f32>(0.0);
        high[c] = vec4<f32>(0.0);
        if (member < HEADS) {
            let at = params.q_offset + row * params.q0 + (first_head + member) * params.q1 + i;
            low[c] = q[at];
            high[c] = q[at + HALF4];
        } else if (line_is) {
            let at = (row * params.n_kv + kv) * D4 + i;
            low[c] = fresh_load(member, at);
            high[c] = fresh_load(member, at + HALF4);
        }
        w_low[c] = norms[w + i];
        w_high[c] = norms[w + i + HALF4];
        cosine[c] = angles[turn + i];
        sine[c] = angles[turn + i + HALF4];
    }
}

fn start_make(row: u32, member: u32, lane: u32) {
    var squares = vec4<f32>(0.0);
    for (var c = 0u; c < EIGHTS; c++) {
        squares += low[c] * low[c] + high[c] * high[c];
    }
    let factor = inverseSqrt(line_sum(squares.x + squares.y + squares.z + squares.w) / f32(4u * D4) + params.eps);
    for (var c = 0u; c < EIGHTS; c++) {
        var u = low[c] * factor;
        var v = high[c] * factor;
        if (member <= HEADS) { // not v
            let a = u * w_low[c];
            let b = v * w_high[c];
            let scale = select(1.0, params.scale, member < HEADS);
            u = (a * cosine[c] - b * sine[c]) * scale;
            v = (a * sine[c] + b * cosine[c]) * scale;
        }
        if (line_is) {
            memory[line_place(member, c * LINE_LANES + lane)] = u;
            memory[line_place(member, c * LINE_LANES + lane + HALF4)] = v;
        }
    }
}
