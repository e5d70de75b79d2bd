// The sum over all invocations of a workgroup, for all of them: runs of SPAN by shuffles, the runs through workgroup memory.
//! options
const SPAN: u32 = 32u; // at most the subgroup's size, and WG
//! end
var<workgroup> sum_memory: array<f32, WG / SPAN>;

fn group_sum(value: f32, local: u32) -> f32 {
    var sum = value;
    for (var step = SPAN / 2u; step > 0u; step /= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
    if (local % SPAN == 0u) {
        sum_memory[local / SPAN] = sum;
    }
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < WG / SPAN; i++) {
        sum += sum_memory[i];
    }
    workgroupBarrier();
    return sum;
}
