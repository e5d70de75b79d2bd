// experts_group - sorts the pairs of a vector and an expert by expert, and cuts each expert's into tiles:
//   map: tiles [n_tile] of (expert, first and end of its pairs in the list) | the list of pairs [n_pair]
// One workgroup. Invocation e counts, then lists, the pairs of expert e (and e + WG, ...), reading all ids by way of
// workgroup memory: so the list is in order, the same in every run. Tiles that are not needed have first = end.
//! options
const EXPERTS: u32 = 128u; // at least n_expert
//! end
const WG: u32 = 256u;
const FOURS: u32 = WG / 4u;

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

var<workgroup> some: array<vec4<u32>, FOURS>;  // experts of WG pairs
var<workgroup> counts: array<u32, EXPERTS>;    // pairs of an expert
var<workgroup> firsts: array<u32, EXPERTS>;    // its place in the list

fn expert_of(pair: u32) -> u32 {
    if (pair >= params.n_pair) {
        return 0xffffffffu;
    }
    let id = ids[params.ids_offset + pair / params.n_used * params.ids_stride + pair % params.n_used];
    return select(0u, u32(id), id >= 0 && u32(id) < params.n_expert);
}

fn load(first: u32, local: u32) {
    workgroupBarrier(); // the last ones may still be read
    if (local < FOURS) {
        let pair = first + local * 4u;
        some[local] = vec4<u32>(expert_of(pair), expert_of(pair + 1u), expert_of(pair + 2u), expert_of(pair + 3u));
    }
    workgroupBarrier();
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) local: u32) {
    for (var e = local; e < EXPERTS; e += WG) {
        counts[e] = 0u;
    }
    for (var first = 0u; first < params.n_pair; first += WG) {
        load(first, local);
        for (var e = local; e < params.n_expert; e += WG) {
            var count = vec4<u32>(0u);
            for (var i = 0u; i < FOURS; i++) {
                count += select(vec4<u32>(0u), vec4<u32>(1u), some[i] == vec4<u32>(e));
            }
            counts[e] += count.x + count.y + count.z + count.w;
        }
    }
    workgroupBarrier();
    for (var e = local; e < params.n_expert; e += WG) {
        var first = 0u;
        var tile = 0u;
        for (var i = 0u; i < e; i++) {
            first += counts[i];
            tile += (counts[i] + params.tile - 1u) / params.tile;
        }
        firsts[e] = first;
        let end = first + counts[e];
        for (; first < end; first += params.tile) {
            map[tile * 3u] = e;
            map[tile * 3u + 1u] = first;
            map[tile * 3u + 2u] = min(first + params.tile, end);
            tile++;
        }
        if (e + 1u == params.n_expert) {
            for (; tile < params.n_tile; tile++) {
                map[tile * 3u + 1u] = 0u;
                map[tile * 3u + 2u] = 0u;
            }
        }
    }
    for (var first = 0u; first < params.n_pair; first += WG) {
        load(first, local);
        for (var e = local; e < params.n_expert; e += WG) {
            var to = firsts[e];
            for (var i = 0u; i < FOURS; i++) {
                let here = some[i] == vec4<u32>(e);
                for (var j = 0u; j < 4u; j++) {
                    if (here[j]) {
                        map[params.n_tile * 3u + to] = first + i * 4u + j;
                        to++;
                    }
                }
            }
            firsts[e] = to;
        }
    }
}
