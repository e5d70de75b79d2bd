// rms_norm - out[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) (* weight)
//   x [r0, r1, r2, d] f32, strided rows; weight [d]; out [r0, r1, r2, d], strides of the bounds
// LANES lanes a row, THREADS / LANES rows a workgroup; a row is read twice, the second time from the cache.
//! options
const THREADS: u32 = 256u;
const LANES: u32 = 64u;
const WEIGHTED: bool = true; // false: `weight` is bound to anything
//! end

struct Params {
    r0: u32, r1: u32, r2: u32, d: u32,
    x_offset: u32, x0: u32, x1: u32, x2: u32,
    o0: u32, o1: u32, o2: u32,
    weight_offset: u32,
    eps: f32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

//! part reduce
var<workgroup> reduce_memory: array<f32, THREADS>;

fn reduce_sum(value: f32, lane: u32) -> f32 {
    reduce_memory[lane] = value;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane % LANES < step) {
            reduce_memory[lane] += reduce_memory[lane + step];
        }
    }
    workgroupBarrier();
    return reduce_memory[lane / LANES * LANES];
}
//! end

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = (group.x + group.y * groups.x) * (THREADS / LANES) + lane / LANES;
    let here = row < params.r0 * params.r1 * params.r2;
    let i2 = row % params.r2;
    let i1 = row / params.r2 % params.r1;
    let i0 = row / params.r2 / params.r1;
    let source = params.x_offset + i0 * params.x0 + i1 * params.x1 + i2 * params.x2;
    let to = i0 * params.o0 + i1 * params.o1 + i2 * params.o2;
    let d = select(0u, params.d, here);
    var sum = 0.0;
    for (var i = lane % LANES; i < d; i += LANES) {
        let value = x[source + i];
        sum += value * value;
    }
    let factor = inverseSqrt(reduce_sum(sum, lane) / f32(params.d) + params.eps);
    for (var i = lane % LANES; i < d; i += LANES) {
        var value = x[source + i] * factor;
        if (WEIGHTED) {
            value *= weight[params.weight_offset + i];
        }
        out[to + i] = value;
    }
}
