// attention_far - attention of few query rows over many keys, on devices with subgroups: made for few instructions a key.
//   q [n, H, d] f32, strided; k_cache, v_cache [n_slot, n_row, h, d]; slot, pos [n] i32
//   out: with one piece [n, H, d]; else partial sums [n, H, n_split, d], and stats [n, H, n_split] (max, sum)
// A workgroup (piece of the keys, four query heads of one kv head, row) reads and converts a number of the caches once for all
// its heads. It takes a tile of keys in three steps with barriers between them.
//   Scores: LANES neighbours of a subgroup have a key's d between them and KEYS keys at a time. They share the sums out: a step
//   of the reduction halves what a lane has left, until it has one head's scores. Which half a lane sends differs with the
//   lane, so queries lie in workgroup memory in the order in which each lane wants them: no lane ever chooses.
//   Weights: a thread a key; the tile's maxima come from atomics.
//   Values: a thread has a four of d, for all heads and every PARTS-th four of keys; the parts meet at the end.
// A piece has PIECE keys at least: short contexts use few pieces, the first ones; the others say that their sum is 0 and write
// nothing else. Part `start` is that of attention_lanes: LINE_LANES neighbours make a line (a query head, a key, a value).
//! options
const THREADS: u32 = 64u;   // at least d / 4; a multiple of LANES
const LANES: u32 = 8u;      // a power of two, 4 to 32; of one subgroup
const LINE_LANES: u32 = 8u; // a power of two, 4 to 32; of one subgroup; six groups of them at least
const D4: u32 = 64u;        // d / 4, a multiple of LANES * AHEAD and of 2 * LINE_LANES
const KEYS: u32 = 4u;       // a multiple of 4
const AHEAD: u32 = 2u;      // fours of each of its keys that a lane has asked for; fours of values that a thread has
const TILE: u32 = 64u;      // a multiple of KEYS
const JOIN: u32 = 1u;       // heads joined at a time, divides HEADS
const PIECE: u32 = 32u;
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

//! include four_f32

fn k_four(at: u32) -> four {
    return k_cache[at];
}

fn v_four(at: u32) -> four {
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
const HEADS: u32 = 4u; // with 8 a thread has room for one workgroup a unit, and twice the text
const FOURS: u32 = D4 / LANES;        // of a key, a lane
const EIGHTS: u32 = D4 / (2u * LINE_LANES); // of a line, a lane
const PARTS: u32 = THREADS / D4;
const KEY_FOURS: u32 = KEYS / 4u;
const ROUND: u32 = GROUPS * KEYS;     // keys
const SCORES: u32 = (HEADS + 2u) * D4;             // in `memory`: [HEADS, TILE]
const WEIGHTS: u32 = SCORES + TILE;                // [TILE, HEADS]

var<workgroup> memory: array<vec4<f32>, max(WEIGHTS + TILE, PARTS * JOIN * D4)>; // lines and those; then the parts' sums
var<workgroup> highest: array<atomic<i32>, HEADS>; // score so far, see ordered
var<workgroup> most: array<f32, HEADS>;            // the same before this tile
var<workgroup> keeps: array<f32, HEADS>;           // what is left of earlier tiles' weights
var<workgroup> totals: array<vec4<f32>, GROUPS>;

// Integers in the order of the numbers; its own inverse.
fn ordered(bits: i32) -> i32 {
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}

fn highest_of(head: u32) -> f32 {
    return bitcast<f32>(ordered(atomicLoad(&highest[head])));
}

// Where four i of a line lies in `memory`. Lane l of those that share a key finds head h ^ l where others have head h.
fn line_place(line: u32, i: u32) -> u32 {
    return select(line, line ^ (i % LANES % HEADS), line < HEADS) * D4 + i;
}

fn line_sum(x: f32) -> f32 {
    var sum = x;
    if (LINE_LANES > 16u) {
        sum += subgroupShuffleXor(sum, 16u);
    }
    if (LINE_LANES > 8u) {
        sum += subgroupShuffleXor(sum, 8u);
    }
    if (LINE_LANES > 4u) {
        sum += subgroupShuffleXor(sum, 4u);
    }
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 1u);
}

// Over the lanes that have the same head.
fn twins_sum(x: vec4<f32>) -> vec4<f32> {
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
    return sum;
}

//! part start
const FRESH: bool = false;

fn start_load(row: u32, first_head: u32, first_piece: bool, member: u32, lane: u32) {
    for (var i = member * LINE_LANES + lane; i < HEADS * D4; i += THREADS) {
        memory[line_place(i / D4, i % D4)] = q[params.q_offset + row * params.q0 + (first_head + i / D4) * params.q1 + i % D4] * params.scale;
    }
}

fn start_make(row: u32, member: u32, lane: u32) {
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
}
//! end

// The first fours of keys [first, first + KEYS) of a tile that has `count` keys; base: of the lane's first four of its key 0.
fn keys_first(base: u32, first: u32, count: u32) -> array<four, KEYS * AHEAD> {
    var keys: array<four, KEYS * AHEAD>;
    for (var k = 0u; k < KEYS; k++) {
        let at = base + min(first + k, count - 1u) * params.n_kv * D4;
        for (var c = 0u; c < AHEAD; c++) {
            keys[c * KEYS + k] = k_four(at + c * LANES);
        }
    }
    return keys;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane = local % LANES;
    let group = local / LANES;
    let row = workgroup.z;
    let first_head = workgroup.y * HEADS;
    let kv = first_head * params.n_kv / params.n_head;
    let first_piece = FRESH && workgroup.x == 0u;
    start_load(row, first_head, first_piece, local / LINE_LANES, local % LINE_LANES);

    let row_sees = row_keys(row);
    let first_key = row_sees.first;
    let sees = row_sees.end > 0u;
    let has_fresh = first_piece && sees;
    let cache_row = u32(slot[params.slot_offset + row]) * params.n_row;
    let key_end = row_sees.end - select(0u, 1u, FRESH && sees); // of the cached ones
    let span = max((key_end - first_key + params.n_split - 1u) / params.n_split, PIECE);
    let begin = first_key + workgroup.x * span;
    let end = min(begin + span, key_end);
    let stride = params.n_kv * D4;                        // of the caches' rows, in fours

    let fours = FOURS + (params.n_split >> 31u);          // FOURS: only no compiler may know and repeat the text
    let column = local % D4;
    let part = local / D4;                                // PARTS: threads that are left over
    var place = begin % params.n_row;                     // row of the tile's first key. A tile ends where the rows do
    var count = min(min(TILE, end - begin), params.n_row - place);
    var keys: array<four, KEYS * AHEAD>;
    if (begin < end && group * KEYS < count) {
        keys = keys_first((cache_row + place) * stride + kv * D4 + lane, group * KEYS, count);
    }
    start_make(row, local / LINE_LANES, local % LINE_LANES);
    if (local < HEADS) {
        atomicStore(&highest[local], ordered(bitcast<i32>(LEAST)));
        most[local] = LEAST;
    }
    workgroupBarrier();

    var sums: array<vec4<f32>, HEADS>;
    for (var h = 0u; h < HEADS; h++) {
        sums[h] = vec4<f32>(0.0);
    }
    var total = vec4<f32>(0.0);
    if (has_fresh) { // its score is the highest so far, so its weight is 1
        for (var h = 0u; h < HEADS; h += THREADS / LINE_LANES) {
            let head = min(h + local / LINE_LANES, HEADS - 1u);
            var score = 0.0;
            for (var i = local % LINE_LANES; i < D4; i += LINE_LANES) {
                score += dot(memory[line_place(head, i)], memory[HEADS * D4 + i]);
            }
            score = line_sum(score);
            if (local % LINE_LANES == 0u && h + local / LINE_LANES < HEADS) {
                atomicMax(&highest[head], ordered(bitcast<i32>(score)));
                most[head] = score;
            }
        }
        if (part == 0u) {
            for (var h = 0u; h < HEADS; h++) {
                sums[h] = memory[(HEADS + 1u) * D4 + column];
            }
        }
        if (local == 0u) {
            total = vec4<f32>(1.0);
        }
        if (first_head * params.n_kv % params.n_head == 0u) {
            fresh_store(row, kv, local);
        }
    }

    for (var tile = begin; tile < end; ) {
        let base = (cache_row + place) * stride + kv * D4; // of the tile's first key, in fours

        var top = LEAST;
        for (var round = 0u; round < count; round += ROUND) {
            let first = round + group * KEYS;
            var score: array<vec4<f32>, HEADS * KEY_FOURS>; // [KEYS / 4, HEADS] of keys
            for (var i = 0u; i < HEADS * KEY_FOURS; i++) {
                score[i] = vec4<f32>(0.0);
            }
            if (first < count) {
                for (var begun = 0u; begun < fours; begun += AHEAD) {
                    for (var c = 0u; c < AHEAD; c++) {
                        var turned: array<mat4x4<f32>, KEY_FOURS>; // a row a key
                        for (var i = 0u; i < KEY_FOURS; i++) {
                            let at = c * KEYS + i * 4u;
                            turned[i] = transpose(mat4x4<f32>(four_of(keys[at]), four_of(keys[at + 1u]), four_of(keys[at + 2u]), four_of(keys[at + 3u])));
                        }
                        if (begun + AHEAD < FOURS) {
                            for (var k = 0u; k < KEYS; k++) {
                                keys[c * KEYS + k] = k_four(base + lane + min(first + k, count - 1u) * stride + (begun + AHEAD + c) * LANES);
                            }
                        }
                        for (var h = 0u; h < HEADS; h++) {
                            let query = memory[h * D4 + (begun + c) * LANES + lane];
                            for (var i = 0u; i < KEY_FOURS; i++) { // one product a sum, for devices to fuse
                                var sum = score[i * HEADS + h];
                                sum += query.x * turned[i][0];
                                sum += query.y * turned[i][1];
                                sum += query.z * turned[i][2];
                                sum += query.w * turned[i][3];
                                score[i * HEADS + h] = sum;
                            }
                        }
                    }
                }
                if (first + ROUND < count) {
                    keys = keys_first(base + lane, first + ROUND, count);
                }
            }
            for (var i = 0u; i < KEY_FOURS; i++) {
                for (var h = 0u; h < 2u; h++) {
                    score[i * HEADS + h] += subgroupShuffleXor(score[i * HEADS + h + 2u], 2u);
                }
                let own = twins_sum(score[i * HEADS] + subgroupShuffleXor(score[i * HEADS + 1u], 1u)); // of head lane % HEADS
                let key = first + i * 4u;
                if (lane < HEADS && key < count) {
                    memory[SCORES + (lane * TILE + key) / 4u] = own;
                    let seen = select(vec4<f32>(LEAST), own, vec4<u32>(key, key + 1u, key + 2u, key + 3u) < vec4<u32>(count));
                    top = max(top, max(max(seen.x, seen.y), max(seen.z, seen.w)));
                }
            }
        }
        if (lane < HEADS) {
            atomicMax(&highest[lane], ordered(bitcast<i32>(top)));
        }
        var values: array<four, 4u * AHEAD>;
        for (var a = 0u; a < AHEAD; a++) {
            for (var k = 0u; k < 4u; k++) {
                values[a * 4u + k] = v_four(base + column + min((a * PARTS + part) * 4u + k, count - 1u) * stride);
            }
        }
        workgroupBarrier();

        var now: vec4<f32>;
        for (var j = 0u; j < 4u; j++) {
            now[j] = highest_of(j);
        }
        if (local < HEADS) {
            let before = most[local];
            most[local] = highest_of(local);
            keeps[local] = exp(before - most[local]);
        }
        var added = vec4<f32>(0.0);
        for (var key = local; key < (count + 3u) / 4u * 4u; key += THREADS) {
            var weight = vec4<f32>(0.0);
            if (key < count) {
                for (var j = 0u; j < 4u; j++) {
                    weight[j] = memory[SCORES + (j * TILE + key) / 4u][key % 4u];
                }
                weight = exp(weight - now);
            }
            memory[WEIGHTS + key] = weight;
            added += weight;
        }
        workgroupBarrier();

        for (var j = 0u; j < 4u; j++) {
            total[j] = total[j] * keeps[j] + added[j];
        }
        for (var h = 0u; h < HEADS; h++) {
            sums[h] *= keeps[h];
        }
        let count_now = count;
        tile += count;
        place = select(place + count, 0u, place + count == params.n_row);
        count = min(min(TILE, end - tile), params.n_row - place);
        if (tile < end && group * KEYS < count) {
            keys = keys_first((cache_row + place) * stride + kv * D4 + lane, group * KEYS, count);
        }
        for (var begun = part * 4u; begun < select(0u, count_now, part < PARTS); begun += AHEAD * PARTS * 4u) {
            for (var a = 0u; a < AHEAD; a++) {
                let key = begun + a * PARTS * 4u;
                let v0 = four_of(values[a * 4u]);
                let v1 = four_of(values[a * 4u + 1u]);
                let v2 = four_of(values[a * 4u + 2u]);
                let v3 = four_of(values[a * 4u + 3u]);
                for (var k = 0u; k < 4u; k++) {
                    values[a * 4u + k] = v_four(base + column + min(key + AHEAD * PARTS * 4u + k, count_now - 1u) * stride);
                }
                if (key < count_now) {
                    let w0 = memory[WEIGHTS + key];
                    let w1 = memory[WEIGHTS + key + 1u];
                    let w2 = memory[WEIGHTS + key + 2u];
                    let w3 = memory[WEIGHTS + key + 3u];
                    for (var h = 0u; h < HEADS; h++) {
                        var sum = sums[h];
                        sum += v0 * w0[h];
                        sum += v1 * w1[h];
                        sum += v2 * w2[h];
                        sum += v3 * w3[h];
                        sums[h] = sum;
                    }
                }
            }
        }
        workgroupBarrier();
    }

    if (SPLIT && begin >= end && !has_fresh) {
        if (local < HEADS) {
            stats[(row * params.n_head + first_head + local) * params.n_split + workgroup.x] = vec2<f32>(LEAST, 0.0);
        }
        return;
    }
    total += subgroupShuffleXor(total, 2u);
    total = twins_sum(total + subgroupShuffleXor(total, 1u));
    if (lane == 0u) {
        totals[group] = total;
    }
    for (var h = 0u; h < HEADS; h += JOIN) {
        workgroupBarrier();
        if (part < PARTS) {
            for (var j = 0u; j < JOIN; j++) {
                memory[(part * JOIN + j) * D4 + column] = sums[h + j];
            }
        }
        workgroupBarrier();
        for (var i = local; i < JOIN * D4; i += THREADS) {
            let head = h + i / D4;
            var sum = vec4<f32>(0.0);
            for (var p = 0u; p < PARTS; p++) {
                sum += memory[p * JOIN * D4 + i];
            }
            var all = 0.0;
            if (!SPLIT || i % D4 == 0u) {
                for (var g = 0u; g < GROUPS; g++) {
                    all += totals[g][head];
                }
            }
            let at = row * params.n_head + first_head + head;
            if (SPLIT) {
                out[(at * params.n_split + workgroup.x) * D4 + i % D4] = sum;
                if (i % D4 == 0u) {
                    stats[at * params.n_split + workgroup.x] = vec2<f32>(highest_of(head), all);
                }
            } else {
                out[at * D4 + i % D4] = sum / max(all, TOTAL_MIN);
            }
        }
    }
}
