// Sums over all invocations of a workgroup, for all of them: runs of SPAN by shuffles, the runs through workgroup memory.
// A call has one barrier. Calls take turns with two halves of the memory: who writes a half again has passed the barrier of
// the call between, and by then all have read it.
//! options
const SPAN: u32 = 32u; // at most the subgroup's size, and WG
//! end
const SUM_RUNS: u32 = WG / SPAN;
var<workgroup> sum_memory: array<vec2<f32>, 2u * SUM_RUNS>;
var<private> sum_half: u32; // where the half of the next call begins

fn group_sum(value: f32, local: u32) -> f32 {
    var sum = value;
    for (var step = SPAN / 2u; step > 0u; step /= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
    if (local % SPAN == 0u) {
        sum_memory[sum_half + local / SPAN] = vec2<f32>(sum, 0.0);
    }
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < SUM_RUNS; i++) {
        sum += sum_memory[sum_half + i].x;
    }
    sum_half = SUM_RUNS - sum_half;
    return sum;
}

fn group_sums(values: vec2<f32>, local: u32) -> vec2<f32> {
    var sums = values;
    for (var step = SPAN / 2u; step > 0u; step /= 2u) {
        sums += subgroupShuffleXor(sums, step);
    }
    if (local % SPAN == 0u) {
        sum_memory[sum_half + local / SPAN] = sums;
    }
    workgroupBarrier();
    sums = vec2<f32>(0.0);
    for (var i = 0u; i < SUM_RUNS; i++) {
        sums += sum_memory[sum_half + i];
    }
    sum_half = SUM_RUNS - sum_half;
    return sums;
}
