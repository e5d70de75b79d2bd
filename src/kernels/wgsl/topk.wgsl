// topk - the k largest of each row in falling order with their indices; ties: lower index. NaN counts as -infinity; behind
//   what a row of this run has come -infinity and -1.
//   x [n, d] f32, strided rows; values [n, k] f32; indices [n, k] i32
// Floats are compared as keys (u32, rising with the value). Pass i takes the best of what comes after pass i - 1 in the
// order (key falling, index rising), so nothing has to be marked as taken. LANES lanes a row.
//! options
const THREADS: u32 = 256u;
const LANES: u32 = 64u;
//! end

struct Params { n: u32, d: u32, k: u32, x_offset: u32, x0: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> indices: array<i32>;

//! part reduce_best
var<workgroup> best_memory: array<vec2<u32>, THREADS>;

fn reduce_best(value: vec2<u32>, lane: u32) -> vec2<u32> {
    workgroupBarrier(); // the row's result may still be read by an earlier call
    best_memory[lane] = value;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane % LANES < step) {
            best_memory[lane] = better(best_memory[lane], best_memory[lane + step]);
        }
    }
    workgroupBarrier();
    return best_memory[lane / LANES * LANES];
}
//! end

// (key, index): the better one of two.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

const LOWEST: u32 = 0x00800000u; // key of -infinity

// Rises with the value; both zeros alike; never 0.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return LOWEST;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = (group.x + group.y * groups.x) * (THREADS / LANES) + lane / LANES;
    let d = select(0u, params.d, row < params.n);
    let source = params.x_offset + row * params.x0;
    var last = vec2<u32>(0xffffffffu, 0u);
    for (var turn = 0u; turn < params.k; turn++) {
        var best = vec2<u32>(0u, 0xffffffffu);
        for (var i = lane % LANES; i < d; i += LANES) {
            let one = vec2<u32>(key_of(x[source + i]), i);
            if (one.x < last.x || (one.x == last.x && one.y > last.y)) {
                best = better(best, one);
            }
        }
        last = reduce_best(best, lane);
        if (lane % LANES == 0u && row < params.n) {
            let lowest = bitcast<f32>(0xff800000u | (row & 0u)); // no constant: those may not be infinite
            values[row * params.k + turn] = select(x[source + min(last.y, d)], lowest, last.x <= LOWEST);
            indices[row * params.k + turn] = i32(last.y);
        }
    }
}
