// Joins the sums of LANES neighbouring lanes, which are several subgroups: runs of REDUCE_SPAN lanes by shuffles, the runs
// through workgroup memory. All get them.
//! options
const REDUCE_SPAN: u32 = 32u; // at most the subgroup's size; LANES is a multiple of it
//! end
const RUNS: u32 = WG / REDUCE_SPAN;
var<workgroup> reduce_sums: array<f32, RUNS * ITEMS>;

fn reduce(sums: ptr<function, array<f32, ITEMS>>, local: u32) {
    for (var i = 0u; i < ITEMS; i++) {
        var sum = (*sums)[i];
        for (var step = REDUCE_SPAN / 2u; step > 0u; step /= 2u) {
            sum += subgroupShuffleXor(sum, step);
        }
        if (local % REDUCE_SPAN == 0u) {
            reduce_sums[i * RUNS + local / REDUCE_SPAN] = sum;
        }
    }
    workgroupBarrier();
    let first = local / LANES * (LANES / REDUCE_SPAN);
    for (var i = 0u; i < ITEMS; i++) {
        var sum = 0.0;
        for (var run = 0u; run < LANES / REDUCE_SPAN; run++) {
            sum += reduce_sums[i * RUNS + first + run];
        }
        (*sums)[i] = sum;
    }
    workgroupBarrier();
}
