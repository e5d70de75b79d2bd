// attention_start_heads - part `start` of attention_decode: queries and the row's own key and value straight from the
// products, before their norms and rotations.
//   q [n, H, d]; norms: rows w_q [d], w_k [d] of F32 weights; angles [n, 2, d / 2] (cos, sin)
//   key, value [n, h, d] (part `fresh`; the value may be the raw key)
// Every workgroup makes its heads anew from a few KB: q and k = rope(rms(x) * w), v = rms(x). With FRESH the last piece of
// each head block makes k and v too, and the first block of a kv head stores them into the caches.
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

var<workgroup> k_row: array<vec4<f32>, D4>;
var<workgroup> v_row: array<vec4<f32>, D4>;

fn fresh_load(row: u32, kv: u32, lane: u32) {
    for (var i = lane; i < D4; i += THREADS) {
        k_row[i] = key[(row * params.n_kv + kv) * D4 + i];
        v_row[i] = value[(row * params.n_kv + kv) * D4 + i];
    }
}

fn fresh_at(line: u32, i: u32) -> vec4<f32> { // line HEADS: k, HEADS + 1: v
    return select(v_row[i], k_row[i], line == HEADS);
}

fn fresh_put(line: u32, i: u32, what: vec4<f32>) {
    if (line == HEADS) {
        k_row[i] = what;
    } else {
        v_row[i] = what;
    }
}

fn fresh_key(i: u32) -> vec4<f32> {
    return k_row[i];
}

fn fresh_value(column: u32) -> vec4<f32> {
    return v_row[column];
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
    let at = u32(slot[params.slot_offset + row]) * params.n_row + u32(pos[params.pos_offset + row]) % params.n_row;
    caches_store((at * params.n_kv + kv) * D4, lane);
}
//! end

const NORM_LANES: u32 = 16u;         // a line: a query head, k or v
const HALF4: u32 = D4 / 2u;

var<workgroup> partial_sums: array<f32, THREADS>;

fn line_at(line: u32, i: u32) -> vec4<f32> {
    if (line < HEADS) {
        return queries[line * D4 + i];
    }
    return fresh_at(line, i);
}

fn line_sum(line: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < NORM_LANES; i++) {
        sum += partial_sums[line * NORM_LANES + i];
    }
    return sum;
}

fn start(row: u32, first_head: u32, last_piece: bool, lane: u32) {
    let kv = first_head * params.n_kv / params.n_head;
    let lines = select(HEADS, HEADS + 2u, last_piece);
    for (var i = lane; i < HEADS * D4; i += THREADS) {
        queries[i] = q[params.q_offset + row * params.q0 + (first_head + i / D4) * params.q1 + i % D4];
    }
    if (last_piece) {
        fresh_load(row, kv, lane);
    }
    workgroupBarrier();
    let line = lane / NORM_LANES;
    var sum = 0.0;
    if (line < lines) {
        for (var i = lane % NORM_LANES; i < D4; i += NORM_LANES) {
            let x = line_at(line, i);
            sum += dot(x, x);
        }
    }
    partial_sums[lane] = sum;
    workgroupBarrier();
    for (var i = lane; i < lines * HALF4; i += THREADS) {
        let l = i / HALF4;
        let low = i % HALF4;
        let high = low + HALF4;
        let factor = inverseSqrt(line_sum(l) / f32(4u * D4) + params.eps);
        var u = line_at(l, low) * factor;
        var v = line_at(l, high) * factor;
        if (l <= HEADS) { // not v
            let w = select(params.w_k_at, params.w_q_at, l < HEADS);
            let turn = params.angles_offset + row * 2u * HALF4 + low;
            let c = angles[turn];
            let s = angles[turn + HALF4];
            let a = u * norms[w + low];
            let b = v * norms[w + high];
            u = a * c - b * s;
            v = a * s + b * c;
        }
        if (l < HEADS) {
            queries[l * D4 + low] = u * params.scale;
            queries[l * D4 + high] = v * params.scale;
        } else {
            fresh_put(l, low, u);
            fresh_put(l, high, v);
        }
    }
    workgroupBarrier();
    if (last_piece) {
        sum = 0.0;
        if (line < HEADS) {
            for (var i = lane % NORM_LANES; i < D4; i += NORM_LANES) {
                sum += dot(queries[line * D4 + i], fresh_key(i));
            }
        }
        partial_sums[lane] = sum;
        workgroupBarrier();
        if (lane < HEADS) {
            row_max[lane] = line_sum(lane);
        }
        if (first_head * params.n_kv % params.n_head == 0u) {
            fresh_store(row, kv, lane);
        }
    } else if (lane < HEADS) {
        row_max[lane] = LEAST;
    }
    workgroupBarrier();
}
