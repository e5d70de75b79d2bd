// attention_decode - attention of few query rows over long caches: the keys of a row are split over workgroups.
//   q [n, H, d] f32, strided; k_cache, v_cache [n_slot, n_row, h, d]; slot, pos [n] i32
//   out: with one piece [n, H, d]; else partial sums [n, H, n_split, d], and stats [n, H, n_split] (max, sum)
// A workgroup (split, HEADS query heads of one kv head, row) reads each key and value once for its heads. Scores: 8 lanes
// along d a key, THREADS / 8 keys at once, KEYS_EACH times. Values: d / 4 lanes, the keys shared by what is left of the
// lanes. Softmax is online over tiles of TILE keys. Masked keys repeat a valid one with weight 0.
// Part `start` says where the queries come from; it may bring the key and value of the row's own position with it (FRESH):
// these are then not taken from the cache, and the last piece of the keys begins with them.
//! options
const THREADS: u32 = 256u;
const D4: u32 = 64u;        // d / 4, at most THREADS
const HEADS: u32 = 4u;      // at most 8
const KEYS_EACH: u32 = 1u;
const SPLIT: bool = true;
//! end

struct Params {
    n_head: u32, n_kv: u32, n_row: u32, n_split: u32, window: u32, scale: f32,
    q_offset: u32, q0: u32, q1: u32, slot_offset: u32, pos_offset: u32,
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
const SLICES: u32 = 8u;                             // lanes along d
const SLOTS: u32 = THREADS / SLICES;                // keys at once
const TILE: u32 = SLOTS * KEYS_EACH;
const QUADS: u32 = (HEADS + 3u) / 4u;               // fours of heads
const PARTS: u32 = min(THREADS / D4, 8u);           // that share the keys of the values
const SOFT_PARTS: u32 = 8u;                         // that share the keys of a head's maximum and sum

var<workgroup> queries: array<vec4<f32>, HEADS * D4>; // at the end sums on their way to be joined
var<workgroup> scores: array<f32, TILE * HEADS>;    // [key, head]
var<workgroup> weights: array<vec4<f32>, TILE * QUADS>; // exp(score - max): [key, four heads]
var<workgroup> soft: array<f32, SOFT_PARTS * HEADS>;
var<workgroup> row_max: array<f32, HEADS>;
var<workgroup> row_keep: array<f32, HEADS>;

//! part start
const FRESH: bool = false;

fn start(row: u32, first_head: u32, last_piece: bool, lane: u32) {
    for (var i = lane; i < HEADS * D4; i += THREADS) {
        queries[i] = q[params.q_offset + row * params.q0 + (first_head + i / D4) * params.q1 + i % D4] * params.scale;
    }
    if (lane < HEADS) {
        row_max[lane] = LEAST;
    }
    workgroupBarrier();
}

fn fresh_value(column: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}
//! end

//! part slices
var<workgroup> products: array<f32, TILE * HEADS * SLICES>;

// Sums over the 8 slices of a key: in [KEYS_EACH, HEADS] of one slice, out scores[key, head].
fn slices_join(own: array<f32, KEYS_EACH * HEADS>, n_key: u32, lane: u32) {
    for (var k = 0u; k < KEYS_EACH; k++) {
        for (var h = 0u; h < HEADS; h++) {
            products[((k * SLOTS + lane / SLICES) * HEADS + h) * SLICES + lane % SLICES] = own[k * HEADS + h];
        }
    }
    workgroupBarrier();
    for (var i = lane; i < TILE * HEADS; i += THREADS) {
        var sum = 0.0;
        for (var s = 0u; s < SLICES; s++) {
            sum += products[i * SLICES + s];
        }
        scores[i] = select(LEAST, sum, i / HEADS < n_key);
    }
}
//! end

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.z;
    let first_head = group.y * HEADS;
    let kv = first_head * params.n_kv / params.n_head;
    let row_sees = row_keys(row);
    let first_key = row_sees.first;
    let sees = row_sees.end > 0u;
    let key_end = row_sees.end - select(0u, 1u, FRESH && sees);                       // of the cached ones
    let span = (key_end - first_key + params.n_split - 1u) / params.n_split;     // keys of a piece
    let begin = first_key + group.x * span;
    let end = min(begin + span, key_end);
    let has_fresh = FRESH && sees && group.x == params.n_split - 1u;
    let cache_row = u32(slot[params.slot_offset + row]) * params.n_row;
    let ring = begin % params.n_row; // row of the first key

    start(row, first_head, has_fresh, lane);
    let head = lane % HEADS; // of maxima and sums
    let part = lane / HEADS;
    let column = lane % D4;  // of the values
    let sharer = lane / D4;
    var sums: array<vec4<f32>, QUADS * 4u>;
    for (var h = 0u; h < HEADS; h++) {
        sums[h] = vec4<f32>(0.0);
    }
    var total = 0.0; // of head, over this part's keys
    if (has_fresh) { // its score is the maximum so far, so its weight is 1
        if (lane < D4) {
            for (var h = 0u; h < HEADS; h++) {
                sums[h] = fresh_value(lane);
            }
        }
        total = select(0.0, 1.0, lane < HEADS);
    }

    for (var tile = begin; tile < end; tile += TILE) {
        let n_key = min(TILE, end - tile);
        let offset = ring + (tile - begin);
        var own: array<f32, KEYS_EACH * HEADS>;
        var at: array<u32, KEYS_EACH>;
        for (var k = 0u; k < KEYS_EACH; k++) {
            var place = offset + min(k * SLOTS + lane / SLICES, n_key - 1u);
            place = select(place, place - params.n_row, place >= params.n_row);
            at[k] = ((cache_row + place) * params.n_kv + kv) * D4;
            for (var h = 0u; h < HEADS; h++) {
                own[k * HEADS + h] = 0.0;
            }
        }
        for (var step = 0u; step < (D4 + SLICES - 1u) / SLICES; step++) { // a count that compilers see, to unroll it
            let i = step * SLICES + lane % SLICES;
            if (D4 % SLICES == 0u || i < D4) {
                for (var k = 0u; k < KEYS_EACH; k++) {
                    let key = k_load(at[k] + i);
                    for (var h = 0u; h < HEADS; h++) {
                        own[k * HEADS + h] += dot(queries[h * D4 + i], key);
                    }
                }
            }
        }
        slices_join(own, n_key, lane);
        workgroupBarrier();

        if (part < SOFT_PARTS) {
            var most = LEAST;
            for (var i = 0u; i < TILE / SOFT_PARTS; i++) {
                most = max(most, scores[(i * SOFT_PARTS + part) * HEADS + head]);
            }
            soft[lane] = most;
        }
        workgroupBarrier();
        if (lane < HEADS) {
            let before = row_max[lane];
            var most = before;
            for (var i = 0u; i < SOFT_PARTS; i++) {
                most = max(most, soft[i * HEADS + lane]);
            }
            row_max[lane] = most;
            row_keep[lane] = exp(before - most);
        }
        workgroupBarrier();
        for (var i = lane; i < TILE * QUADS; i += THREADS) {
            let key = i / QUADS;
            var weight = vec4<f32>(0.0);
            for (var c = 0u; c < 4u; c++) {
                let h = i % QUADS * 4u + c;
                if (h < HEADS && key < n_key) {
                    weight[c] = exp(scores[key * HEADS + h] - row_max[h]);
                }
            }
            weights[i] = weight;
        }
        workgroupBarrier();

        if (part < SOFT_PARTS) {
            total *= row_keep[head];
            for (var i = 0u; i < TILE / SOFT_PARTS; i++) {
                total += weights[(i * SOFT_PARTS + part) * QUADS + head / 4u][head % 4u];
            }
        }
        for (var h = 0u; h < HEADS; h++) {
            sums[h] *= row_keep[h];
        }
        if (sharer < PARTS) {
            for (var step = 0u; step < (TILE + PARTS - 1u) / PARTS; step++) {
                let key = step * PARTS + sharer;
                var place = offset + min(key, n_key - 1u);
                place = select(place, place - params.n_row, place >= params.n_row);
                let value = v_load(((cache_row + place) * params.n_kv + kv) * D4 + column);
                if (TILE % PARTS == 0u || key < TILE) {
                    for (var f = 0u; f < QUADS; f++) {
                        let weight = weights[key * QUADS + f];
                        sums[f * 4u] += weight.x * value;
                        sums[f * 4u + 1u] += weight.y * value;
                        sums[f * 4u + 2u] += weight.z * value;
                        sums[f * 4u + 3u] += weight.w * value;
                    }
                }
            }
        }
    }

    workgroupBarrier();
    if (part < SOFT_PARTS) {
        soft[lane] = total;
    }
    for (var other = 1u; other < PARTS; other++) {
        if (sharer == other) {
            for (var h = 0u; h < HEADS; h++) {
                queries[h * D4 + column] = sums[h];
            }
        }
        workgroupBarrier();
        if (lane < D4) {
            for (var h = 0u; h < HEADS; h++) {
                sums[h] += queries[h * D4 + lane];
            }
        }
        workgroupBarrier();
    }
    if (PARTS == 1u) {
        workgroupBarrier();
    }
    if (lane < D4) {
        for (var h = 0u; h < HEADS; h++) {
            var all = 0.0;
            for (var i = 0u; i < SOFT_PARTS; i++) {
                all += soft[i * HEADS + h];
            }
            let place = row * params.n_head + first_head + h;
            if (SPLIT) {
                out[(place * params.n_split + group.x) * D4 + lane] = sums[h];
                if (lane == 0u) {
                    stats[place * params.n_split + group.x] = vec2<f32>(row_max[h], all);
                }
            } else {
                out[place * D4 + lane] = sums[h] / max(all, TOTAL_MIN);
            }
        }
    }
}
