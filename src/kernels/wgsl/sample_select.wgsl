// sample_select - the second stage of sampling: indices of a few logits that surely hold the k best of their row.
//   x [n, d] f32, strided rows; best [n, n_part] as argmax leaves it, n_part <= 1024; settings [n, 8] u32
//   list [n, d] u32: region w of a row, [w * size, ...), holds what was found there; counts [n, n_region]
// The k-th best of the parts' best ones is a bound: at least k elements reach it, and few more. Every workgroup (region)
// finds that bound anew by a radix search over (key, ~index), 8 bits a turn, and lists its region's elements from it on.
struct Params { n: u32, d: u32, size: u32, n_region: u32, n_part: u32, x_offset: u32, x0: u32, settings_offset: u32, settings0: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> best: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> settings: array<u32>;
@group(0) @binding(3) var<storage, read_write> list: array<u32>;
@group(0) @binding(4) var<storage, read_write> counts: array<u32>;

const THREADS: u32 = 256u;
const EACH: u32 = 4u; // parts a lane

var<workgroup> bins: array<atomic<u32>, THREADS>;
var<workgroup> above: array<u32, THREADS>;
var<workgroup> found: vec3<u32>; // bin, elements above it, elements in it
var<workgroup> listed: atomic<u32>;

// Rises with the value; both zeros alike; NaN 0.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0u;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

fn candidate_count(row: u32) -> u32 {
    let at = params.settings_offset + row * params.settings0;
    let top_k = settings[at + 3u];
    if (!(bitcast<f32>(settings[at]) > 0.0)) {
        return 1u;
    }
    return select(min(top_k, 256u), 256u, top_k == 0u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let region = group.x;
    let row = group.y;
    var wanted = candidate_count(row);
    var keys: array<vec2<u32>, EACH>; // (key, ~index), larger is better; (0, 0): none
    for (var i = 0u; i < EACH; i++) {
        let part = lane + i * THREADS;
        if (part < params.n_part) {
            let one = best[row * params.n_part + part];
            keys[i] = vec2<u32>(one.x, ~one.y);
        }
    }
    var bound = vec2<u32>(0u, 0u);
    var mask = vec2<u32>(0u, 0u); // of the bits of `bound` that are found
    if (wanted == 1u) { // the best of the parts' best is known
        if (lane < 2u) {
            atomicStore(&bins[lane], 0u);
        }
        workgroupBarrier();
        for (var i = 0u; i < EACH; i++) {
            atomicMax(&bins[0], keys[i].x);
        }
        workgroupBarrier();
        bound.x = atomicLoad(&bins[0]);
        for (var i = 0u; i < EACH; i++) {
            atomicMax(&bins[1], select(0u, keys[i].y, keys[i].x == bound.x));
        }
        workgroupBarrier();
        bound.y = atomicLoad(&bins[1]);
        if (lane == 0u) {
            let one = ~bound.y;
            if (one / params.size == region) {
                list[row * params.d + region * params.size] = one;
            }
            counts[row * params.n_region + region] = select(0u, 1u, one / params.size == region);
        }
        return;
    }
    if (wanted < params.n_part) {
        for (var turn = 0u; turn < 8u; turn++) {
            let shift = 24u - turn % 4u * 8u;
            atomicStore(&bins[lane], 0u);
            workgroupBarrier();
            for (var i = 0u; i < EACH; i++) {
                if (lane + i * THREADS < params.n_part && all((keys[i] & mask) == bound)) {
                    let word = select(keys[i].y, keys[i].x, turn < 4u);
                    atomicAdd(&bins[(word >> shift) & 255u], 1u);
                }
            }
            workgroupBarrier();
            let mine = atomicLoad(&bins[lane]);
            above[lane] = mine;
            for (var step = 1u; step < THREADS; step *= 2u) {
                workgroupBarrier();
                var sum = above[lane];
                if (lane + step < THREADS) {
                    sum += above[lane + step];
                }
                workgroupBarrier();
                above[lane] = sum;
            }
            if (above[lane] >= wanted && above[lane] - mine < wanted) {
                found = vec3<u32>(lane, above[lane] - mine, mine);
            }
            let bin = workgroupUniformLoad(&found);
            if (turn < 4u) {
                bound.x |= bin.x << shift;
                mask.x |= 255u << shift;
            } else {
                bound.y |= bin.x << shift;
                mask.y |= 255u << shift;
            }
            wanted -= bin.y;
            if (wanted == bin.z) { // the whole bin is wanted
                break;
            }
        }
    }
    if (lane == 0u) {
        atomicStore(&listed, 0u);
    }
    workgroupBarrier();
    let start = region * params.size;
    let end = min(start + params.size, params.d);
    for (var i = start + lane; i < end; i += THREADS) {
        let key = key_of(x[params.x_offset + row * params.x0 + i]);
        if (key > bound.x || (key == bound.x && ~i >= bound.y)) {
            list[row * params.d + start + atomicAdd(&listed, 1u)] = i;
        }
    }
    workgroupBarrier();
    if (lane == 0u) {
        counts[row * params.n_region + region] = atomicLoad(&listed);
    }
}
