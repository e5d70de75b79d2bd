// Products of a weight matrix with one vector or a few: out[n, row] = sum over k of w[row, k] * x[n, k].
//
// A group of LANES invocations shares ROWS rows: each lane takes every LANES-th chunk of them (16 bytes or more of each
// row, neighbouring lanes neighbouring bytes), then the lanes' sums are joined. The workgroups walk the tiles of rows;
// id.y counts the vectors by N_X. Everything that varies is a part:
//   x         how the vectors are kept: x_fill, then x_at (f32) or x_quants, x_block and x_pair (int8)
//   prologue  where they come from: prologue_begin, then prologue_at (inside x)
//   reader    PART_load and the rest (read_q4_k.wgsl); body: PART_tile, the loop over a tile; epilogue: PART_store;
//             these three once for each segment of rows, under its prefix
//   reduce    joins the lanes' sums;   walk  which segment a tile belongs to
//   matrix    which of several matrices a vector meets (experts)
// With LANES 1 and nothing kept in workgroup memory there is no barrier at all: so it runs on software devices.
//! options
const WG: u32 = 64u;    // invocations
const LANES: u32 = 8u;  // of a row
const ROWS: u32 = 1u;   // that a group of lanes reads at a time
const N_X: u32 = 1u;    // vectors at a time
const PER: u32 = 1u;    // weight rows read for one result (2: gate and up)
const DEPTH: u32 = 1u;  // chunks of a row that a lane loads before it works on them
const ONCE: bool = false; // no workgroup has a second tile: less text, which a unit's instruction cache holds beside others
//! end
const SLOTS: u32 = WG / LANES;
const TILE: u32 = SLOTS * ROWS;
const OUTS: u32 = ROWS * N_X;   // results of a group of lanes
const SOFTWARE: bool = LANES == 1u;
const NONE: u32 = 0xffffffffu;  // no tile
const ITEMS: u32 = OUTS * PER;  // its sums; result o has items o * PER and on

struct Params {
    n_tile: u32,   // of all segments
    n_x: u32,      // vectors
    k: u32,        // length of a vector
    x_stride: u32, // from vector to vector, elements
    x_offset: u32, // of the first
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;

var<private> x_first: u32;      // number of the first vector
var<private> group_number: u32; // of the workgroups that share these vectors

//! part matrix
// One for all.
fn matrix_begin(local: u32) {
}

fn matrix_vector(n: u32) -> u32 { // vector of result n
    return n;
}

fn matrix_row(row: u32, chunk: u32) -> u32 { // where row `row` is stored, or the stretch of it that this chunk is of
    return row;
}

fn matrix_chunk(chunk: u32) -> u32 { // number of the chunk in that stretch
    return chunk;
}

fn matrix_chunks(stretch: u32) -> u32 { // of a row
    return stretch;
}

fn matrix_holds(row: u32) -> bool { // and whether it is
    return true;
}
//! end

fn x_row(n: u32) -> u32 {
    return matrix_vector(min(x_first + n, params.n_x - 1u));
}

//! part x
// Vectors straight from where they lie.
//! part prologue
//! include matvec_prologue_plain
//! end

fn x_fill(local: u32) {
    prologue_begin(local);
}

fn x_at(n: u32, four: u32, half: u32, second: u32) -> mat4x4<f32> {
    let i = four * 16u + second * 8u + half * 4u;
    return mat4x4<f32>(prologue_at(n, i), prologue_at(n, i + 1u), prologue_at(n, i + 2u), prologue_at(n, i + 3u));
}
//! end

//! part reduce
var<workgroup> reduce_sums: array<f32, WG * ITEMS>;

// Lane o % LANES gets the sums of result o.
fn reduce(sums: ptr<function, array<f32, ITEMS>>, local: u32) {
    for (var i = 0u; i < ITEMS; i++) {
        reduce_sums[i * WG + local] = (*sums)[i];
    }
    workgroupBarrier();
    let lane = local % LANES;
    for (var o = 0u; o < OUTS; o++) {
        if (o % LANES == lane) {
            for (var j = 0u; j < PER; j++) {
                let first = (o * PER + j) * WG + local - lane;
                var sum = 0.0;
                for (var l = 0u; l < LANES; l++) {
                    sum += reduce_sums[first + l];
                }
                (*sums)[o * PER + j] = sum;
            }
        }
    }
    workgroupBarrier();
}
//! end

//! part reader
//! include read_f32
//! end

//! part body
//! include matvec_body_f32
//! end

//! part epilogue
//! include matvec_store
//! end

//! part walk
fn walk_fetch(tile: u32, local: u32) {
    PART_fetch(tile, local % LANES, local);
}

fn walk(tile: u32, next: u32, local: u32) {
    PART_tile(tile, next, local);
}
//! end

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    x_first = id.y * N_X;
    group_number = id.x;
    matrix_begin(local);
    if (id.x < params.n_tile) {
        walk_fetch(id.x, local); // the first weights come while the vectors are made
    }
    x_fill(local);
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
