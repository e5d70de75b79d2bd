// attention_tile - attention of many query rows: a tile of queries against tiles of keys, softmax online.
//   q [n, H, d] f32, strided; k_cache, v_cache [n_slot, n_row, h, d]; slot, pos [n] i32; out [n, H, d]
// A workgroup has ROWS rows = (query, head of the GROUP that shares a kv head); so every key and value that it loads
// serves all of them. Scores of KEYS keys come from chunks of CHUNK fours of q and k in workgroup memory (a lane makes 4
// rows by KEYS_EACH keys), then the weights lie there as [key, row], and the values follow VALUES keys at a time (a lane
// keeps ROWS_EACH rows by COLUMNS fours of d). Keys run from the least to the greatest that a row of the tile sees, each
// row masked for itself; rows of another slot take turns, and so do rows whose keys one ring cannot hold (usually there is one
// turn).
// TILE4 is d / 4 rounded up to a power of two; what is beyond d is zero.
//! options
const D4: u32 = 64u;       // d / 4
const TILE4: u32 = 64u;
const GROUP: u32 = 1u;     // query heads a tile, all of one kv head
const ROWS: u32 = 32u;
const KEYS: u32 = 32u;
const CHUNK: u32 = 4u;     // fours of d
const VALUES: u32 = 4u;    // keys
const COLUMNS: u32 = 2u;   // fours of d a lane
//! end

struct Params {
    n: u32, n_head: u32, n_kv: u32, n_row: u32, window: u32, scale: f32,
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

//! include attention_keys

const THREADS: u32 = 256u;
const LEAST: f32 = -3.0e38;
const QUERIES: u32 = ROWS / GROUP;                 // of a tile
const QUADS: u32 = ROWS / 4u;                      // fours of rows
const KEY_LANES: u32 = THREADS / QUADS;
const KEYS_EACH: u32 = KEYS / KEY_LANES;           // of a lane, KEY_LANES apart
const COLUMN_LANES: u32 = TILE4 / COLUMNS;
const ROWS_EACH: u32 = ROWS * COLUMN_LANES / THREADS;
const QUADS_EACH: u32 = ROWS_EACH / 4u;
const LINE: u32 = CHUNK + 1u;                      // odd: no two lanes in one bank
const STAGE_QK: u32 = (ROWS + KEYS) * LINE;
const STAGE_V: u32 = VALUES * TILE4;
const STAGE: u32 = max(max(STAGE_QK, STAGE_V), THREADS);

var<workgroup> stage: array<vec4<f32>, STAGE>;     // chunks of q and k; values; maxima
var<workgroup> weights: array<vec4<f32>, KEYS * QUADS>; // [key, fours of rows]
var<workgroup> keep: array<vec4<f32>, QUADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let first_query = (groups.x - 1u - group.x) * QUERIES; // long ones first
    let n_query = min(QUERIES, params.n - first_query);
    let first_head = group.y * GROUP;
    let kv = first_head * params.n_kv / params.n_head;
    let quad = lane / KEY_LANES;                   // scores: rows 4 * quad .. + 3, keys key_lane + i * KEY_LANES
    let key_lane = lane % KEY_LANES;
    let soft_quad = lane % QUADS;                  // softmax: rows 4 * soft_quad .. + 3, keys soft_part + i * KEY_LANES
    let soft_part = lane / QUADS;
    let column = lane % COLUMN_LANES;              // values: rows out_quad * 4 .., fours column + i * COLUMN_LANES
    let out_quad = lane / COLUMN_LANES * QUADS_EACH;

    var sums: array<vec4<f32>, ROWS_EACH * COLUMNS>;
    for (var i = 0u; i < ROWS_EACH * COLUMNS; i++) {
        sums[i] = vec4<f32>(0.0);
    }
    var most = vec4<f32>(LEAST);                   // of the rows of soft_quad
    var total = vec4<f32>(0.0);                    // the same, over this lane's keys

    var done = 0u;
    while (done < n_query) {
        // The queries [done, end) have one slot and see keys in [low, key_end).
        let place = slot[params.slot_offset + first_query + done];
        var end = done;
        var low = 0xffffffffu;
        var key_end = 0u;
        while (end < n_query) {
            if (slot[params.slot_offset + first_query + end] != place) {
                break;
            }
            let own = row_keys(first_query + end);
            if (own.end > 0u) {
                let first = min(low, own.first);
                let last = max(key_end, own.end);
                if (last - first > params.n_row) {
                    break;
                }
                low = first;
                key_end = last;
            }
            end++;
        }
        let cache_row = u32(place) * params.n_row;
        var row_low: vec4<u32>;                    // keys [low, end) that the rows of quad see
        var row_end: vec4<u32>;
        for (var i = 0u; i < 4u; i++) {
            let query = (quad * 4u + i) / GROUP;
            let own = row_keys(first_query + min(query, n_query - 1u));
            row_low[i] = own.first;
            row_end[i] = select(0u, own.end, query >= done && query < end);
        }

        for (var tile = low; tile < key_end; tile += KEYS) {
            let ring = tile % params.n_row;
            var scores: array<vec4<f32>, KEYS_EACH>;
            for (var i = 0u; i < KEYS_EACH; i++) {
                scores[i] = vec4<f32>(0.0);
            }
            for (var chunk = 0u; chunk < TILE4; chunk += CHUNK) {
                workgroupBarrier();
                for (var i = lane; i < ROWS * CHUNK; i += THREADS) {
                    let row = i / CHUNK;
                    let c = chunk + i % CHUNK;
                    let query = first_query + min(row / GROUP, n_query - 1u);
                    let head = first_head + row % GROUP;
                    var value = vec4<f32>(0.0);
                    if (TILE4 == D4 || c < D4) {
                        value = q[params.q_offset + query * params.q0 + head * params.q1 + c] * params.scale;
                    }
                    stage[row * LINE + i % CHUNK] = value;
                }
                for (var i = lane; i < KEYS * CHUNK; i += THREADS) {
                    let key = i / CHUNK;
                    let c = chunk + i % CHUNK;
                    var at = ring + min(key, key_end - 1u - tile);
                    at = select(at, at - params.n_row, at >= params.n_row);
                    var value = vec4<f32>(0.0);
                    if (TILE4 == D4 || c < D4) {
                        value = k_load(((cache_row + at) * params.n_kv + kv) * D4 + c);
                    }
                    stage[(ROWS + key) * LINE + i % CHUNK] = value;
                }
                workgroupBarrier();
                for (var c = 0u; c < CHUNK; c++) {
                    let q0 = stage[(quad * 4u) * LINE + c];
                    let q1 = stage[(quad * 4u + 1u) * LINE + c];
                    let q2 = stage[(quad * 4u + 2u) * LINE + c];
                    let q3 = stage[(quad * 4u + 3u) * LINE + c];
                    for (var i = 0u; i < KEYS_EACH; i++) {
                        let key = stage[(ROWS + key_lane + i * KEY_LANES) * LINE + c];
                        scores[i] += vec4<f32>(dot(q0, key), dot(q1, key), dot(q2, key), dot(q3, key));
                    }
                }
            }
            for (var i = 0u; i < KEYS_EACH; i++) {
                let key = vec4<u32>(tile + key_lane + i * KEY_LANES);
                let seen = (key >= row_low) & (key < row_end);
                weights[(key_lane + i * KEY_LANES) * QUADS + quad] = select(vec4<f32>(LEAST), scores[i], seen);
            }
            workgroupBarrier();

            var here = vec4<f32>(LEAST);
            for (var i = 0u; i < KEYS_EACH; i++) {
                here = max(here, weights[(soft_part + i * KEY_LANES) * QUADS + soft_quad]);
            }
            stage[lane] = here; // [part, quad]
            workgroupBarrier();
            var now = most;
            for (var i = 0u; i < KEY_LANES; i++) {
                now = max(now, stage[i * QUADS + soft_quad]);
            }
            let fade = exp(most - now);
            most = now;
            total *= fade;
            if (soft_part == 0u) {
                keep[soft_quad] = fade;
            }
            for (var i = 0u; i < KEYS_EACH; i++) {
                let at = (soft_part + i * KEY_LANES) * QUADS + soft_quad;
                let score = weights[at];
                let weight = select(exp(score - now), vec4<f32>(0.0), score < vec4<f32>(0.5 * LEAST));
                total += weight;
                weights[at] = weight;
            }
            workgroupBarrier();

            for (var r = 0u; r < QUADS_EACH; r++) {
                let fades = keep[out_quad + r];
                for (var c = 0u; c < COLUMNS; c++) {
                    sums[(r * 4u) * COLUMNS + c] *= fades.x;
                    sums[(r * 4u + 1u) * COLUMNS + c] *= fades.y;
                    sums[(r * 4u + 2u) * COLUMNS + c] *= fades.z;
                    sums[(r * 4u + 3u) * COLUMNS + c] *= fades.w;
                }
            }
            for (var first = 0u; first < KEYS; first += VALUES) {
                if (first > 0u) {
                    workgroupBarrier();
                }
                for (var i = lane; i < VALUES * TILE4; i += THREADS) {
                    var at = ring + min(first + i / TILE4, key_end - 1u - tile);
                    at = select(at, at - params.n_row, at >= params.n_row);
                    let c = i % TILE4;
                    var value = vec4<f32>(0.0);
                    if (TILE4 == D4 || c < D4) {
                        value = v_load(((cache_row + at) * params.n_kv + kv) * D4 + c);
                    }
                    stage[i] = value;
                }
                workgroupBarrier();
                for (var key = 0u; key < VALUES; key++) {
                    var values: array<vec4<f32>, COLUMNS>;
                    for (var c = 0u; c < COLUMNS; c++) {
                        values[c] = stage[key * TILE4 + column + c * COLUMN_LANES];
                    }
                    for (var r = 0u; r < QUADS_EACH; r++) {
                        let weight = weights[(first + key) * QUADS + out_quad + r];
                        for (var c = 0u; c < COLUMNS; c++) {
                            sums[(r * 4u) * COLUMNS + c] += weight.x * values[c];
                            sums[(r * 4u + 1u) * COLUMNS + c] += weight.y * values[c];
                            sums[(r * 4u + 2u) * COLUMNS + c] += weight.z * values[c];
                            sums[(r * 4u + 3u) * COLUMNS + c] += weight.w * values[c];
                        }
                    }
                }
            }
        }
        done = end;
    }

    workgroupBarrier();
    stage[lane] = total; // [part, quad]
    workgroupBarrier();
    for (var r = 0u; r < QUADS_EACH; r++) {
        var all = vec4<f32>(0.0);
        for (var i = 0u; i < KEY_LANES; i++) {
            all += stage[i * QUADS + out_quad + r];
        }
        for (var i = 0u; i < 4u; i++) {
            let row = (out_quad + r) * 4u + i;
            let query = row / GROUP;
            if (query < n_query) {
                for (var c = 0u; c < COLUMNS; c++) {
                    let fours = column + c * COLUMN_LANES;
                    if (fours < D4) {
                        out[((first_query + query) * params.n_head + first_head + row % GROUP) * D4 + fours] =
                            sums[(r * 4u + i) * COLUMNS + c] / max(all[i], TOTAL_MIN);
                    }
                }
            }
        }
    }
}
