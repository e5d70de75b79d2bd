// Sums over all invocations of a workgroup, for all of them: runs of SPAN by shuffles, the runs through workgroup memory.
// A call has one barrier. Calls take turns with two halves of the memory: who writes a half again has passed the barrier of
// the call between, and by then all have read it.
//! options
const SPAN: u32 = 32u; // at most the subgroup's size, and WG
//! end
const SUM_RUNS: u32 = WG / SPAN;
const SUM_FOURS: u32 = (SUM_RUNS + 3u) / 4u;
var<workgroup> sum_memory: array<vec4<f32>, 2u * SUM_FOURS>;  // of a number a run
var<workgroup> sums_memory: array<vec2<f32>, 2u * SUM_RUNS>; // of two
var<private> sum_half: u32; // 0 or 1: the next call's half

fn group_sum(value: f32, local: u32) -> f32 {
    var sum = value;
    for (var step = SPAN / 2u; step > 0u; step /= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
    let run = local / SPAN;
    if (local % SPAN == 0u) {
        sum_memory[sum_half * SUM_FOURS + run / 4u][run % 4u] = sum;
    }
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < SUM_FOURS; i++) {
        let four = sum_memory[sum_half * SUM_FOURS + i];
        if (SUM_RUNS % 4u == 0u) {
            sum += (four.x + four.y) + (four.z + four.w);
        } else {
            for (var j = 0u; j < min(SUM_RUNS - i * 4u, 4u); j++) {
                sum += four[j];
            }
        }
    }
    sum_half = 1u - sum_half;
    return sum;
}

fn group_sums(values: vec2<f32>, local: u32) -> vec2<f32> {
    var sums = values;
    for (var step = SPAN / 2u; step > 0u; step /= 2u) {
        sums += subgroupShuffleXor(sums, step);
    }
    if (local % SPAN == 0u) {
        sums_memory[sum_half * SUM_RUNS + local / SPAN] = sums;
    }
    workgroupBarrier();
    sums = vec2<f32>(0.0);
    for (var i = 0u; i < SUM_RUNS; i++) {
        sums += sums_memory[sum_half * SUM_RUNS + i];
    }
    sum_half = 1u - sum_half;
    return sums;
}
