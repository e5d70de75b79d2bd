// sample_draw - the last stage of sampling: sorts the listed candidates, cuts them by top-k, top-p and min-p, and draws.
//   x [n, d] f32, strided rows; list, counts as sample_select leaves them; settings [n, 8] u32; out [n] i32
// Usually some 300 candidates are listed and one bitonic sort does; more are sorted in turns that keep the 256 best. The
// rule is written out in lower_sample.c.
struct Params { n: u32, d: u32, size: u32, n_region: u32, x_offset: u32, x0: u32, settings_offset: u32, settings0: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> list: array<u32>;
@group(0) @binding(2) var<storage, read> counts: array<u32>;
@group(0) @binding(3) var<storage, read> settings: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<i32>;

const THREADS: u32 = 256u;
const SORTED: u32 = 512u;
const KEPT: u32 = 256u;
const REGIONS: u32 = 64u;

var<workgroup> ends: array<u32, REGIONS>;           // running sums of the counts
var<workgroup> sorted: array<vec2<u32>, SORTED>;    // (key, ~index), falling; (0, 0): none
var<workgroup> sums: array<f32, KEPT>;
var<workgroup> n_kept: atomic<u32>;
var<workgroup> chosen: atomic<u32>;

// Rises with the value; both zeros alike; NaN 0.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0u;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

fn rotate(v: u32, by: u32) -> u32 {
    return (v << by) | (v >> (32u - by));
}

// The first word of Threefry-2x32-20 (Salmon et al. 2011).
fn threefry(key0: u32, key1: u32, counter: u32) -> u32 {
    var turns = array<u32, 8>(13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u);
    var keys = array<u32, 3>(key0, key1, 0x1bd11bdau ^ key0 ^ key1);
    var a = counter + key0;
    var b = key1;
    for (var i = 0u; i < 20u; i++) {
        a += b;
        b = rotate(b, turns[i % 8u]) ^ a;
        if (i % 4u == 3u) {
            let turn = i / 4u + 1u;
            a += keys[turn % 3u];
            b += keys[(turn + 1u) % 3u] + turn;
        }
    }
    return a;
}

// Listed candidate `at` of the row, (0, 0) beyond the last.
fn candidate(row: u32, at: u32) -> vec2<u32> {
    if (at >= ends[params.n_region - 1u]) {
        return vec2<u32>(0u, 0u);
    }
    var low = 0u; // the first region that ends beyond `at`
    var high = params.n_region - 1u;
    for (var i = 0u; i < 6u; i++) {
        let middle = (low + high) / 2u;
        if (ends[middle] > at) {
            high = middle;
        } else {
            low = min(middle + 1u, high);
        }
    }
    var before = 0u;
    if (low > 0u) {
        before = ends[low - 1u];
    }
    let index = list[row * params.d + low * params.size + at - before];
    return vec2<u32>(key_of(x[params.x_offset + row * params.x0 + index]), ~index);
}

fn comes_before(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}

fn sort(size: u32, lane: u32) { // size: a power of two
    for (var block = 2u; block <= size; block *= 2u) {
        for (var step = block / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            for (var i = lane; i < size / 2u; i += THREADS) {
                let a = i / step * step * 2u + i % step;
                let b = a + step;
                let first = sorted[a];
                let second = sorted[b];
                if (comes_before(second, first) == ((a & block) == 0u)) {
                    sorted[a] = second;
                    sorted[b] = first;
                }
            }
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x;
    let at = params.settings_offset + row * params.settings0;
    let temperature = bitcast<f32>(settings[at]);
    let top_p = bitcast<f32>(settings[at + 1u]);
    let min_p = bitcast<f32>(settings[at + 2u]);
    let top_k = settings[at + 3u];
    if (lane < params.n_region) {
        ends[lane] = counts[row * params.n_region + lane];
    }
    for (var step = 1u; step < params.n_region; step *= 2u) {
        workgroupBarrier();
        var sum = 0u;
        if (lane < params.n_region) {
            sum = ends[lane];
            if (lane >= step) {
                sum += ends[lane - step];
            }
        }
        workgroupBarrier();
        if (lane < params.n_region) {
            ends[lane] = sum;
        }
    }
    let total = workgroupUniformLoad(&ends[params.n_region - 1u]);
    if (total == 1u) { // nothing to choose from
        if (lane == 0u) {
            out[row] = i32(~candidate(row, 0u).y);
        }
        return;
    }
    var size = 2u; // a power of two
    while (size < min(total, SORTED)) {
        size *= 2u;
    }
    for (var i = lane; i < size; i += THREADS) {
        sorted[i] = candidate(row, i);
    }
    sort(size, lane);
    for (var first = size; first < total; first += SORTED - KEPT) {
        for (var i = lane; i < SORTED - KEPT; i += THREADS) {
            sorted[KEPT + i] = candidate(row, first + i);
        }
        sort(SORTED, lane);
    }

    var n_candidate = select(min(top_k, KEPT), KEPT, top_k == 0u);
    n_candidate = min(n_candidate, total);
    if (!(temperature > 0.0)) {
        n_candidate = 1u;
    }
    let best = x[params.x_offset + row * params.x0 + ~sorted[0].y];
    var p = 0.0;
    if (lane < n_candidate) {
        let logit = x[params.x_offset + row * params.x0 + ~sorted[lane].y];
        if (sorted[lane].x > 0x007fffffu) { // neither NaN nor minus infinity
            p = exp((logit - best) / max(temperature, 1e-30));
        }
    }
    sums[lane] = p;
    if (lane == 0u) {
        atomicStore(&n_kept, 1u);
        atomicStore(&chosen, KEPT);
    }
    for (var step = 1u; step < KEPT; step *= 2u) {
        workgroupBarrier();
        var sum = sums[lane];
        if (lane >= step) {
            sum += sums[lane - step];
        }
        workgroupBarrier();
        sums[lane] = sum;
    }
    workgroupBarrier();
    let below_top = top_p >= 1.0 || top_p <= 0.0 || sums[lane] - p < top_p * sums[KEPT - 1u];
    if (lane < n_candidate && below_top && (min_p <= 0.0 || p >= min_p)) {
        atomicMax(&n_kept, lane + 1u);
    }
    workgroupBarrier();
    let kept = atomicLoad(&n_kept);
    let unit = f32(threefry(settings[at + 4u], settings[at + 5u], settings[at + 6u]) >> 8u) / 16777216.0;
    if (lane < kept && sums[lane] > unit * sums[kept - 1u]) {
        atomicMin(&chosen, lane);
    }
    workgroupBarrier();
    if (lane == 0u) {
        let one = min(atomicLoad(&chosen), select(0u, kept - 1u, sums[kept - 1u] > 0.0));
        out[row] = i32(~sorted[one].y);
    }
}
