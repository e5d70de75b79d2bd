// argmax_join - the index of the best part of each row: the second stage of argmax.
//   best [n, n_part] (u32 key, u32 index); out [n] i32
// A row that is all NaN gives 0. LANES lanes a row.
//! options
const THREADS: u32 = 256u;
const LANES: u32 = 256u;
//! end

struct Params { n: u32, n_part: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> best: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<i32>;

//! part reduce_best
var<workgroup> best_memory: array<vec2<u32>, THREADS>;

fn reduce_best(value: vec2<u32>, lane: u32) -> vec2<u32> {
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

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = (group.x + group.y * groups.x) * (THREADS / LANES) + lane / LANES;
    var most = vec2<u32>(0u, 0xffffffffu);
    for (var i = lane % LANES; i < select(0u, params.n_part, row < params.n); i += LANES) {
        most = better(most, best[row * params.n_part + i]);
    }
    most = reduce_best(most, lane);
    if (lane % LANES == 0u && row < params.n) {
        out[row] = i32(most.y);
    }
}
