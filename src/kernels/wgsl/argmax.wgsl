// argmax - the best of each part of each row as (key, index): the first stage of argmax and of sampling.
//   x [n, d] f32, strided rows; parts of `size` neighbours; best [n, n_part] (u32 key, u32 index)
// Keys rise with the value; ties: lower index; NaN comes last. LANES lanes a part.
//! options
const THREADS: u32 = 256u;
const LANES: u32 = 32u;
//! end

struct Params { n: u32, d: u32, size: u32, n_part: u32, x_offset: u32, x0: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> best: array<vec2<u32>>;

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

// Rises with the value; both zeros alike; NaN 0.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0u;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * (THREADS / LANES) + lane / LANES;
    let row = index / params.n_part;
    let start = index % params.n_part * params.size;
    let end = select(0u, min(start + params.size, params.d), row < params.n);
    var most = vec2<u32>(0u, 0xffffffffu);
    for (var i = start + lane % LANES; i < end; i += LANES) {
        most = better(most, vec2<u32>(key_of(x[params.x_offset + row * params.x0 + i]), i));
    }
    most = reduce_best(most, lane);
    if (lane % LANES == 0u && row < params.n) {
        best[index] = most;
    }
}
