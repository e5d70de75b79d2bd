// attention_serial - attention on software devices: one thread a query head and a piece of its keys, no barriers.
//   q [n, H, d] f32, strided; k_cache, v_cache [n_slot, n_row, h, d]; slot, pos [n] i32
//   out: with one piece [n, H, d]; else partial sums [n, H, n_split, d], and stats [n, H, n_split] (max, sum)
// Rows [first_row, first_row + rows) of a run, so that partial sums of long contexts fit; their place counts from there.
// Four keys at a time, the sums kept in `out`: the compilers of such devices take seconds over larger arrays of a thread.
// Part `start` says where the queries come from; it may bring the key and value of the row's own position with it (FRESH):
// these are then not taken from the cache, and the last piece of the keys begins with them.
//! options
const D4: u32 = 16u;         // d / 4
const SPLIT: bool = false;
//! end

struct Params {
    n: u32, first_row: u32, n_head: u32, n_kv: u32, n_row: u32, n_split: u32, window: u32, scale: f32,
    q_offset: u32, q0: u32, q1: u32, slot_offset: u32, pos_offset: u32, rows: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;

//! part cache
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<f32>>;

fn k_load(at: u32) -> vec4<f32> { // at: in fours
    return k_cache[at];
}

fn v_load(at: u32) -> vec4<f32> {
    return v_cache[at];
}
//! end
@group(0) @binding(3) var<storage, read> slot: array<i32>;
@group(0) @binding(4) var<storage, read> pos: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;

//! include attention_keys

const LEAST: f32 = -3.0e38;
const THREADS: u32 = 1u; // that share the work of a head and piece, for parts

//! part start
const FRESH: bool = false;
var<private> source: u32;

fn start(row: u32, head: u32, place: u32, last_piece: bool) {
    source = params.q_offset + row * params.q0 + head * params.q1;
}

fn query_at(i: u32) -> vec4<f32> {
    return q[source + i];
}

fn fresh_key(i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_value(i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}
//! end

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 8u + lane;
    let head = index % params.n_head;
    let split = index / params.n_head % params.n_split;
    let local = index / params.n_head / params.n_split;
    let row = params.first_row + local;
    if (row >= params.n || local >= params.rows) {
        return;
    }
    let row_sees = row_keys(row);
    let first = row_sees.first;
    let sees = row_sees.end > 0u;
    let key_end = row_sees.end - select(0u, 1u, FRESH && sees);                      // of the cached ones
    let span = (key_end - first + params.n_split - 1u) / params.n_split; // keys of a piece
    let begin = first + split * span;
    let end = min(begin + span, key_end);
    let has_fresh = FRESH && sees && split == params.n_split - 1u;
    let kv = head * params.n_kv / params.n_head;
    let cache_row = u32(slot[params.slot_offset + row]) * params.n_row;

    var place = row * params.n_head + head;
    if (SPLIT) {
        place = (local * params.n_head + head) * params.n_split + split;
    }
    start(row, head, place, has_fresh);
    var most = LEAST;
    var total = 0.0;
    if (has_fresh) { // its score is the maximum so far, so its weight is 1
        var score = 0.0;
        for (var i = 0u; i < D4; i++) {
            score += dot(query_at(i), fresh_key(i));
            out[place * D4 + i] = fresh_value(i);
        }
        most = score * params.scale;
        total = 1.0;
    } else if (begin >= end) {
        for (var i = 0u; i < D4; i++) {
            out[place * D4 + i] = vec4<f32>(0.0);
        }
    }
    for (var key = begin; key < end; key += 4u) {
        let last_four = vec4<u32>(end - 1u);
        let four = min(vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u), last_four) % params.n_row;
        let at = ((vec4<u32>(cache_row) + four) * params.n_kv + kv) * D4;
        var scores = vec4<f32>(0.0);
        for (var i = 0u; i < D4; i++) {
            let query = query_at(i);
            scores += vec4<f32>(dot(query, k_load(at.x + i)), dot(query, k_load(at.y + i)), dot(query, k_load(at.z + i)),
                                dot(query, k_load(at.w + i)));
        }
        scores *= params.scale; // keys beyond the last repeat it: no greater maximum
        let now = max(most, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let keep = exp(most - now);
        let p = select(vec4<f32>(0.0), exp(scores - now), vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u) <= last_four);
        most = now;
        total = total * keep + p.x + p.y + p.z + p.w;
        for (var i = 0u; i < D4; i++) {
            var sum = p.x * v_load(at.x + i) + p.y * v_load(at.y + i) + p.z * v_load(at.z + i) + p.w * v_load(at.w + i);
            if (has_fresh || key > begin) {
                sum += out[place * D4 + i] * keep;
            }
            out[place * D4 + i] = sum;
        }
    }
    if (SPLIT) {
        stats[place] = vec2<f32>(most, total);
    } else {
        for (var i = 0u; i < D4; i++) {
            out[place * D4 + i] /= max(total, TOTAL_MIN);
        }
    }
}
