// Products of a weight matrix with up to 16 vectors at a time, which an earlier dispatch rounded to int8:
// out[n, row] = sum over k of w[row, k] * x[n, k]. Options, parts and segments as in matvec.
//
// What bounds it is instructions: so a weight is unpacked once for all N_X vectors, and whatever of the vectors comes out
// of workgroup memory serves all rows of an invocation. LANES invocations share its ROWS rows: SHARE neighbours of a
// subgroup, whose sums shuffles join, times the runs of WG / (LANES / SHARE) invocations that divide k, whose sums go
// through workgroup memory. The vectors lie there a window of k at a time, DEPTH chunks of each lane; the next window's
// words are under way meanwhile. NEAR rows lie in neighbouring lanes, which read the same words of the vectors.
//
// Instructions (ptxas, sm_90, of this text as CUDA), Q4_K, 2 rows, 16 vectors, a lane and 64 elements of k: 1,030 in the
// loop, of which 512 dot products of four, 256 to scale them (4 for 8 products), 96 loads from workgroup memory, 130 to
// unpack; and 100 for the next loads. A unit issues four a clock, of which two may be dot products: both limits are near.
// With 4 rows 1.85 for a dot product in place of 2.0, and with Q6_K, whose scales serve 16 elements, 2.5. Gate and up of
// E2B (2 x 12288 rows, k 1536): 151 M dot products, 10.2 us on 132 units at 1.755 GHz if nothing waits. From workgroup memory
// come 40 bytes for 16 products: where lanes that read the same words cost nothing, 0.6 of what it gives; else it is the
// limit, and 4 rows a lane are the answer.
//
// Sums and rows have names and constant places: drivers that do not unroll loops would keep an array in memory.
//! options
const WG: u32 = 32u;            // invocations
const LANES: u32 = 4u;          // of a row
const SHARE: u32 = 4u;          // of them in a subgroup: NEAR * SHARE is at most its size, and divides WG / (LANES / SHARE)
const NEAR: u32 = 2u;           // rows in neighbouring lanes
const ROWS: u32 = 1u;           // results that a lane has of a vector: ROWS * PER is 1, 2 or 4
const N_X: u32 = 4u;            // vectors at a time: 2, 4, 8, 12 or 16
const PER: u32 = 1u;            // weight rows read for one result (2: gate and up)
const DEPTH: u32 = 1u;          // chunks of 64 elements of a lane in a window
const RESIDENT: bool = false;   // one window is all of k
const ONCE: bool = false;       // no workgroup has a second tile
//! end
const SLOTS: u32 = WG / LANES;
const TILE: u32 = SLOTS * ROWS;
const RUN: u32 = SLOTS * SHARE;  // invocations that have the same part of k
const SPLIT: u32 = LANES / SHARE;
const ITEMS: u32 = ROWS * PER;
const QUADS: u32 = (N_X + 3u) / 4u;
const NONE: u32 = 0xffffffffu;   // no tile
const X_GROUPS: u32 = LANES * DEPTH * 4u; // of 16 elements, in a window
const X_SIZE: u32 = N_X * X_GROUPS;
const X_EACH: u32 = (X_SIZE + WG - 1u) / WG;
const X_BLOCKS: u32 = X_SIZE / 2u;
const B_EACH: u32 = (X_BLOCKS + WG - 1u) / WG;
const OUT_AT: u32 = select(0u, X_SIZE, RESIDENT); // where the sums lie: in place of a window that is done with
const OUT_SIZE: u32 = SPLIT * ITEMS * QUADS * SLOTS;
const ROUND: i32 = 0x4b400000;   // the bits of 1.5 * 2^23: sums up to 2^22 above it are floats without conversion
const_assert WG % LANES == 0u && LANES % SHARE == 0u && SLOTS % NEAR == 0u && X_GROUPS % 8u == 0u;
const_assert ITEMS == 1u || ITEMS == 2u || ITEMS == 4u;

struct Params {
    n_tile: u32,   // of all segments
    n_x: u32,      // vectors
    k: u32,        // length of a vector, a multiple of 32
    x_stride: u32, // not used, as x_offset
    x_offset: u32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>; // i8 [n_x, k] | scale f32, sums of both halves i16 [n_x, k / 32]

var<workgroup> x_words: array<vec4<u32>, max(X_SIZE, OUT_AT + OUT_SIZE)>; // i8 [N_X, X_GROUPS] permuted; or sums f32
var<workgroup> x_scales: array<vec2<f32>, X_BLOCKS>;                      // scale, sum times scale [N_X, X_GROUPS / 2]
var<private> x_first: u32;                                                // number of the first vector
var<private> x_ahead: array<vec4<u32>, X_EACH>;
var<private> scales_ahead: array<vec2<u32>, B_EACH>;

fn x_row(n: u32) -> u32 {
    return min(x_first + n, params.n_x - 1u);
}

// Lanes that read at a time are a chunk (2 or 4 groups, or neighbours) apart; so they meet different banks.
fn place(group: u32) -> u32 {
    return group ^ (((group >> 3u) & 1u) * 5u) ^ (((group >> 4u) & 1u) * 2u);
}

fn x_fetch(window: u32, local: u32) {
    for (var e = 0u; e < X_EACH; e++) {
        let i = min(e * WG + local, X_SIZE - 1u);
        let group = min(window * X_GROUPS + i % X_GROUPS, params.k / 16u - 1u);
        x_ahead[e] = x[x_row(i / X_GROUPS) * (params.k / 16u) + group];
    }
    for (var e = 0u; e < B_EACH; e++) {
        let i = min(e * WG + local, X_BLOCKS - 1u);
        let block = min(window * (X_GROUPS / 2u) + i % (X_GROUPS / 2u), params.k / 32u - 1u);
        let at = x_row(i / (X_GROUPS / 2u)) * (params.k / 32u) + block;
        let two = x[params.n_x * (params.k / 16u) + (at >> 1u)];
        scales_ahead[e] = select(two.xy, two.zw, (at & 1u) != 0u);
    }
}

fn x_keep(local: u32) {
    for (var e = 0u; e < X_EACH; e++) {
        let i = e * WG + local;
        if (i < X_SIZE) {
            x_words[i / X_GROUPS * X_GROUPS + place(i % X_GROUPS)] = x_ahead[e];
        }
    }
    for (var e = 0u; e < B_EACH; e++) {
        let i = e * WG + local;
        if (i < X_BLOCKS) {
            let sums = bitcast<i32>(scales_ahead[e].y);
            x_scales[i] = bitcast<f32>(scales_ahead[e].x) * vec2<f32>(1.0, f32(((sums << 16u) >> 16u) + (sums >> 16u)));
        }
    }
}

fn lane_slot(local: u32) -> u32 {
    let lane = local % RUN;
    return lane / (NEAR * SHARE) * NEAR + lane % NEAR;
}

fn lane_share(local: u32) -> u32 {
    return local / NEAR % SHARE;
}

fn lane_of(local: u32) -> u32 { // of LANES
    return local / RUN * SHARE + lane_share(local);
}

fn dot16(start: i32, a: vec4<u32>, b: vec4<u32>) -> i32 {
    var sum = start;
    sum += dot4I8Packed(a.x, b.x);
    sum += dot4I8Packed(a.y, b.y);
    sum += dot4I8Packed(a.z, b.z);
    sum += dot4I8Packed(a.w, b.w);
    return sum;
}

fn joined(sums: vec4<f32>) -> vec4<f32> {
    var sum = sums;
    for (var step = NEAR; step < NEAR * SHARE; step *= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}

// The sums of one item and four vectors.
fn leave(four: u32, item: u32, sums: vec4<f32>, local: u32) {
    let sum = joined(sums);
    if (lane_share(local) == four % SHARE) {
        x_words[OUT_AT + ((local / RUN * ITEMS + item) * QUADS + four) * SLOTS + lane_slot(local)] = bitcast<vec4<u32>>(sum);
    }
}

fn leave_all(four: u32, sums: mat4x4<f32>, local: u32) { // [vector][item]
    let items = transpose(sums);
    leave(four, 0u, items[0], local);
    if (ITEMS > 1u) {
        leave(four, 1u, items[1], local);
    }
    if (ITEMS > 2u) {
        leave(four, 2u, items[2], local);
        leave(four, 3u, items[3], local);
    }
}

fn left(four: u32, slot: u32, item: u32) -> vec4<f32> {
    var sum = vec4<f32>(0.0);
    for (var part = 0u; part < SPLIT; part++) {
        sum += bitcast<vec4<f32>>(x_words[OUT_AT + ((part * ITEMS + item) * QUADS + four) * SLOTS + slot]);
    }
    return sum;
}

//! part reader
//! include read_q8_0
//! end

//! part body
//! include matvec_batch_any
//! end

//! part epilogue
//! include matvec_store
//! end

//! part walk
fn walk_fetch(tile: u32, local: u32) {
    PART_fetch(tile, 0u, local);
}

fn walk(tile: u32, next: u32, local: u32) {
    PART_tile(tile, next, local);
}
//! end

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    x_first = id.y * N_X;
    if (id.x < params.n_tile) {
        walk_fetch(id.x, local); // the first weights come while the vectors do
    }
    if (RESIDENT) {
        x_fetch(0u, local);
        x_keep(local);
        workgroupBarrier();
    }
    if (ONCE) {
        if (id.x < params.n_tile) {
            walk(id.x, NONE, local);
        }
        return;
    }
    for (var tile = id.x; tile < params.n_tile; tile += n_group.x) {
        let next = tile + n_group.x;
        walk(tile, select(NONE, next, next < params.n_tile), local);
    }
}
