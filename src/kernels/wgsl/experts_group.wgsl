// experts_group - sorts the pairs of a vector and an expert by expert, and cuts each expert's into tiles:
//   map: tiles [n_tile] of (expert, first and end of its pairs in the list) | the list of pairs [n_pair]
// A workgroup an expert: it counts the pairs of all, and lists its own. Each invocation has pairs next to each other: so
// the list is in order, the same in every run. Tiles that are not needed have first = end.
//! options
const EXPERTS: u32 = 128u; // at least n_expert
//! end
const WG: u32 = 256u;

struct Params {
    n_pair: u32,
    n_used: u32,      // experts of a vector
    n_expert: u32,
    ids_offset: u32,
    ids_stride: u32,
    tile: u32,        // pairs of a tile
    n_tile: u32,      // tiles at most
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> ids: array<i32>;             // [n, n_used], rows at ids_stride
@group(0) @binding(1) var<storage, read_write> map: array<u32>;       // [3 * n_tile + n_pair]

var<workgroup> counts: array<atomic<u32>, EXPERTS>; // pairs of an expert
var<workgroup> found: array<u32, WG>;               // this one's, of an invocation

fn expert_of(pair: u32) -> u32 {
    let id = ids[params.ids_offset + pair / params.n_used * params.ids_stride + pair % params.n_used];
    return select(0u, u32(id), id >= 0 && u32(id) < params.n_expert);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let expert = group.x;
    let each = (params.n_pair + WG - 1u) / WG;
    let begin = min(local * each, params.n_pair);
    let end = min(begin + each, params.n_pair);
    var own = 0u;
    for (var e = local; e < EXPERTS; e += WG) {
        atomicStore(&counts[e], 0u);
    }
    workgroupBarrier();
    for (var pair = begin; pair < end; pair++) {
        let e = expert_of(pair);
        atomicAdd(&counts[e], 1u);
        own += select(0u, 1u, e == expert);
    }
    found[local] = own;
    workgroupBarrier();
    var first = 0u;
    var tile = 0u;
    for (var e = 0u; e < expert; e++) {
        let count = atomicLoad(&counts[e]);
        first += count;
        tile += (count + params.tile - 1u) / params.tile;
    }
    let count = atomicLoad(&counts[expert]);
    let tiles = (count + params.tile - 1u) / params.tile;
    for (var t = local; t < tiles; t += WG) {
        map[(tile + t) * 3u] = expert;
        map[(tile + t) * 3u + 1u] = first + t * params.tile;
        map[(tile + t) * 3u + 2u] = first + min((t + 1u) * params.tile, count);
    }
    if (expert + 1u == params.n_expert) {
        for (var t = tile + tiles + local; t < params.n_tile; t += WG) {
            map[t * 3u + 1u] = 0u;
            map[t * 3u + 2u] = 0u;
        }
    }
    if (own == 0u) {
        return;
    }
    var at = params.n_tile * 3u + first;
    for (var i = 0u; i < local; i++) {
        at += found[i];
    }
    for (var pair = begin; pair < end; pair++) {
        if (expert_of(pair) == expert) {
            map[at] = pair;
            at++;
        }
    }
}
