// attention_lanes - attention of few query rows over caches, on devices with subgroups: made for few barriers and loads
// that are under way long before they are needed.
//   q [n, H, d] f32, strided; k_cache, v_cache [n_slot, n_row, h, d]; slot, pos [n] i32
//   out: with one piece [n, H, d]; else partial sums [n, H, n_split, d], and stats [n, H, n_split] (max, sum)
// A workgroup (piece of the keys, HEADS query heads of one kv head, row). LANES neighbours of a subgroup have a key's d
// between them, as eights: a group of lanes keeps queries, sums and an online softmax of its own in registers, so that the
// groups meet only once, at the end. KEYS keys a group are under way at a time; those of the next round are asked for as soon
// as the registers are free. Masked keys repeat a valid one with weight 0. A piece has PIECE keys at least: short contexts
// use few pieces, the first ones; the others say that their sum is 0 and write nothing else.
// Part `start` says where the queries come from; it may bring the key and value of the row's own position with it (FRESH):
// these are then not taken from the cache, and the first piece begins with them.
//! options
const THREADS: u32 = 64u;   // GROUPS * LANES
const LANES: u32 = 8u;      // a power of two, 4 to 32; of one subgroup
const D4: u32 = 64u;        // d / 4, a multiple of 2 * LANES
const HEADS: u32 = 2u;
const KEYS: u32 = 4u;       // a multiple of 4
const JOIN: u32 = 1u;       // heads joined at a time, divides HEADS
const PIECE: u32 = 64u;
const HELD: bool = true;    // queries in registers; else read again for each round, which leaves registers for more heads
const SPLIT: bool = true;
//! end

struct Params {
    n_head: u32, n_kv: u32, n_row: u32, n_split: u32, window: u32, scale: f32,
    q_offset: u32, q0: u32, q1: u32, slot_offset: u32, pos_offset: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;

//! part cache
@group(0) @binding(1) var<storage, read> k_cache: array<mat2x4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<mat2x4<f32>>;

//! include eight_f32

fn k_eight(at: u32) -> eight { // at: in eights
    return k_cache[at];
}

fn v_eight(at: u32) -> eight {
    return v_cache[at];
}
//! end
@group(0) @binding(3) var<storage, read> slot: array<i32>;
@group(0) @binding(4) var<storage, read> pos: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;

//! include attention_keys

const LEAST: f32 = -3.0e38;
const GROUPS: u32 = THREADS / LANES;
const EIGHTS: u32 = D4 / (2u * LANES);   // of a key, a lane
const LINE_LANES: u32 = LANES;           // that make a line
const LINES: u32 = HEADS + 2u;           // query heads, key, value
const QUADS: u32 = KEYS / 4u;
const TILE: u32 = GROUPS * KEYS;
const HALVES: u32 = D4 / 2u;
const QUERY_FOURS: u32 = select(1u, HEADS * EIGHTS * 2u, HELD);

var<workgroup> memory: array<vec4<f32>, max(LINES * D4, GROUPS * JOIN * D4)>; // lines, then the sums of the groups
var<workgroup> group_stats: array<vec2<f32>, GROUPS * HEADS>;                  // (max, sum)

// Where four i of a line lies in `memory`: first those that begin an eight, then those that end one, so that neighbours that
// read their eights read neighbours.
fn place_of(i: u32) -> u32 {
    return i / 2u + i % 2u * HALVES;
}

fn line_place(line: u32, i: u32) -> u32 {
    return line * D4 + place_of(i);
}

fn lanes_sum(x: vec4<f32>) -> vec4<f32> {
    var sum = x;
    if (LANES > 16u) {
        sum += subgroupShuffleXor(sum, 16u);
    }
    if (LANES > 8u) {
        sum += subgroupShuffleXor(sum, 8u);
    }
    if (LANES > 4u) {
        sum += subgroupShuffleXor(sum, 4u);
    }
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 1u);
}

fn line_sum(x: f32) -> f32 {
    return lanes_sum(vec4<f32>(x)).x;
}

//! part start
const FRESH: bool = false;

fn start_load(row: u32, first_head: u32, first_piece: bool, member: u32, lane: u32) {
    for (var i = member * LANES + lane; i < HEADS * D4; i += THREADS) {
        memory[line_place(i / D4, i % D4)] = q[params.q_offset + row * params.q0 + (first_head + i / D4) * params.q1 + i % D4] * params.scale;
    }
}

fn start_make(row: u32, member: u32, lane: u32) {
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
}
//! end

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane = local % LANES;
    let member = local / LANES;
    let row = group.z;
    let first_head = group.y * HEADS;
    let kv = first_head * params.n_kv / params.n_head;
    let first_piece = FRESH && group.x == 0u;
    start_load(row, first_head, first_piece, member, lane);

    let row_sees = row_keys(row);
    let first_key = row_sees.first;
    let sees = row_sees.end > 0u;
    let has_fresh = first_piece && sees;
    let cache_row = u32(slot[params.slot_offset + row]) * params.n_row;
    let key_end = row_sees.end - select(0u, 1u, FRESH && sees);                                       // of the cached ones
    let span = max((key_end - first_key + params.n_split - 1u) / params.n_split, PIECE);
    let begin = first_key + group.x * span;
    let end = min(begin + span, key_end);
    let ring = begin % params.n_row;                                                            // row of the first key

    var keys: array<eight, KEYS * EIGHTS>;
    var values: array<eight, KEYS * EIGHTS>;
    if (begin < end) {
        for (var k = 0u; k < KEYS; k++) {
            var place = ring + min(k * GROUPS + member, end - 1u - begin);
            place = select(place, place - params.n_row, place >= params.n_row);
            let at = ((cache_row + place) * params.n_kv + kv) * (D4 / 2u) + lane;
            for (var c = 0u; c < EIGHTS; c++) {
                keys[k * EIGHTS + c] = k_eight(at + c * LANES);
                values[k * EIGHTS + c] = v_eight(at + c * LANES);
            }
        }
    }
    start_make(row, member, lane);
    workgroupBarrier();

    var queries: array<vec4<f32>, QUERY_FOURS>;
    var sums: array<vec4<f32>, HEADS * EIGHTS * 2u>;
    var most: array<f32, HEADS>;
    var total: array<f32, HEADS>;
    for (var h = 0u; h < HEADS; h++) {
        for (var c = 0u; c < EIGHTS; c++) {
            if (HELD) {
                let at = h * D4 + c * LANES + lane;
                queries[(h * EIGHTS + c) * 2u] = memory[at];
                queries[(h * EIGHTS + c) * 2u + 1u] = memory[at + HALVES];
            }
            sums[(h * EIGHTS + c) * 2u] = vec4<f32>(0.0);
            sums[(h * EIGHTS + c) * 2u + 1u] = vec4<f32>(0.0);
        }
        most[h] = LEAST;
        total[h] = 0.0;
    }
    if (has_fresh) { // its score is the first group's maximum so far, so its weight is 1
        for (var h = 0u; h < HEADS; h++) {
            var score = 0.0;
            for (var c = 0u; c < EIGHTS; c++) {
                let at = c * LANES + lane;
                score += dot(memory[h * D4 + at], memory[HEADS * D4 + at]) +
                         dot(memory[h * D4 + at + HALVES], memory[HEADS * D4 + at + HALVES]);
            }
            score = lanes_sum(vec4<f32>(score)).x;
            if (member == 0u) {
                most[h] = score;
                total[h] = 1.0;
                for (var c = 0u; c < EIGHTS; c++) {
                    let at = (HEADS + 1u) * D4 + c * LANES + lane;
                    sums[(h * EIGHTS + c) * 2u] = memory[at];
                    sums[(h * EIGHTS + c) * 2u + 1u] = memory[at + HALVES];
                }
            }
        }
        if (first_head * params.n_kv % params.n_head == 0u) {
            fresh_store(row, kv, local);
        }
    }

    for (var tile = begin; tile < end; tile += TILE) {
        var scores: array<vec4<f32>, HEADS * QUADS>;
        let queries_at = (tile >> 31u) + lane; // never more than lane: only no compiler may know and keep them in registers
        for (var i = 0u; i < QUADS; i++) {
            for (var h = 0u; h < HEADS; h++) {
                scores[h * QUADS + i] = vec4<f32>(0.0);
            }
            for (var c = 0u; c < EIGHTS; c++) {
                let k0 = keys[(i * 4u) * EIGHTS + c];
                let k1 = keys[(i * 4u + 1u) * EIGHTS + c];
                let k2 = keys[(i * 4u + 2u) * EIGHTS + c];
                let k3 = keys[(i * 4u + 3u) * EIGHTS + c];
                let low0 = eight_low(k0);
                let low1 = eight_low(k1);
                let low2 = eight_low(k2);
                let low3 = eight_low(k3);
                let high0 = eight_high(k0);
                let high1 = eight_high(k1);
                let high2 = eight_high(k2);
                let high3 = eight_high(k3);
                for (var h = 0u; h < HEADS; h++) {
                    var low: vec4<f32>;
                    var high: vec4<f32>;
                    if (HELD) {
                        low = queries[(h * EIGHTS + c) * 2u];
                        high = queries[(h * EIGHTS + c) * 2u + 1u];
                    } else {
                        low = memory[h * D4 + c * LANES + queries_at];
                        high = memory[h * D4 + c * LANES + queries_at + HALVES];
                    }
                    scores[h * QUADS + i] += vec4<f32>(dot(low, low0) + dot(high, high0), dot(low, low1) + dot(high, high1),
                                                       dot(low, low2) + dot(high, high2), dot(low, low3) + dot(high, high3));
                }
            }
        }
        let more = tile + TILE < end;
        if (more) {
            for (var k = 0u; k < KEYS; k++) {
                var place = ring + min(tile + TILE + k * GROUPS + member, end - 1u) - begin;
                place = select(place, place - params.n_row, place >= params.n_row);
                let at = ((cache_row + place) * params.n_kv + kv) * (D4 / 2u) + lane;
                for (var c = 0u; c < EIGHTS; c++) {
                    keys[k * EIGHTS + c] = k_eight(at + c * LANES);
                }
            }
        }
        for (var h = 0u; h < HEADS; h++) {
            var now = most[h];
            for (var i = 0u; i < QUADS; i++) {
                let first = tile + i * 4u * GROUPS + member;
                let seen = vec4<u32>(first, first + GROUPS, first + 2u * GROUPS, first + 3u * GROUPS) < vec4<u32>(end);
                let score = select(vec4<f32>(LEAST), lanes_sum(scores[h * QUADS + i]), seen);
                scores[h * QUADS + i] = score;
                now = max(now, max(max(score.x, score.y), max(score.z, score.w)));
            }
            let keep = exp(most[h] - now);
            var all = vec4<f32>(0.0);
            for (var i = 0u; i < QUADS; i++) {
                let score = scores[h * QUADS + i];
                let weight = select(exp(score - now), vec4<f32>(0.0), score == vec4<f32>(LEAST));
                scores[h * QUADS + i] = weight;
                all += weight;
            }
            most[h] = now;
            total[h] = total[h] * keep + (all.x + all.y + all.z + all.w);
            for (var c = 0u; c < EIGHTS * 2u; c++) {
                sums[h * EIGHTS * 2u + c] *= keep;
            }
        }
        for (var i = 0u; i < QUADS; i++) {
            for (var c = 0u; c < EIGHTS; c++) {
                let v0 = values[(i * 4u) * EIGHTS + c];
                let v1 = values[(i * 4u + 1u) * EIGHTS + c];
                let v2 = values[(i * 4u + 2u) * EIGHTS + c];
                let v3 = values[(i * 4u + 3u) * EIGHTS + c];
                let low = mat4x4<f32>(eight_low(v0), eight_low(v1), eight_low(v2), eight_low(v3));
                let high = mat4x4<f32>(eight_high(v0), eight_high(v1), eight_high(v2), eight_high(v3));
                for (var h = 0u; h < HEADS; h++) {
                    let weight = scores[h * QUADS + i];
                    sums[(h * EIGHTS + c) * 2u] += low * weight;
                    sums[(h * EIGHTS + c) * 2u + 1u] += high * weight;
                }
            }
        }
        if (more) {
            for (var k = 0u; k < KEYS; k++) {
                var place = ring + min(tile + TILE + k * GROUPS + member, end - 1u) - begin;
                place = select(place, place - params.n_row, place >= params.n_row);
                let at = ((cache_row + place) * params.n_kv + kv) * (D4 / 2u) + lane;
                for (var c = 0u; c < EIGHTS; c++) {
                    values[k * EIGHTS + c] = v_eight(at + c * LANES);
                }
            }
        }
    }

    if (SPLIT && begin >= end && !has_fresh) {
        if (local < HEADS) {
            stats[(row * params.n_head + first_head + local) * params.n_split + group.x] = vec2<f32>(LEAST, 0.0);
        }
        return;
    }
    if (lane == 0u) {
        for (var h = 0u; h < HEADS; h++) {
            group_stats[member * HEADS + h] = vec2<f32>(most[h], total[h]);
        }
    }
    for (var h = 0u; h < HEADS; h += JOIN) {
        workgroupBarrier();
        for (var j = 0u; j < JOIN; j++) {
            for (var c = 0u; c < EIGHTS; c++) {
                let at = (member * JOIN + j) * D4 + c * LANES + lane;
                memory[at] = sums[((h + j) * EIGHTS + c) * 2u];
                memory[at + HALVES] = sums[((h + j) * EIGHTS + c) * 2u + 1u];
            }
        }
        workgroupBarrier();
        for (var i = local; i < JOIN * D4; i += THREADS) {
            let head = h + i / D4;
            let at = i / D4 * D4 + place_of(i % D4);
            var highest = LEAST;
            for (var g = 0u; g < GROUPS; g++) {
                highest = max(highest, group_stats[g * HEADS + head].x);
            }
            var all = 0.0;
            var sum = vec4<f32>(0.0);
            for (var g = 0u; g < GROUPS; g++) {
                let one = group_stats[g * HEADS + head];
                let weight = exp(one.x - highest);
                all += one.y * weight;
                sum += memory[g * JOIN * D4 + at] * weight;
            }
            let place = row * params.n_head + first_head + head;
            if (SPLIT) {
                out[(place * params.n_split + group.x) * D4 + i % D4] = sum;
                if (i % D4 == 0u) {
                    stats[place * params.n_split + group.x] = vec2<f32>(highest, all);
                }
            } else {
                out[place * D4 + i % D4] = sum / max(all, TOTAL_MIN);
            }
        }
    }
}
