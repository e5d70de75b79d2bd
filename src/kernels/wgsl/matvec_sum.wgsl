// Sums over all invocations of a workgroup, for all of them, through workgroup memory.
var<workgroup> sum_memory: array<f32, WG>;

fn group_sum(value: f32, local: u32) -> f32 {
    sum_memory[local] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (local < half) {
            sum_memory[local] += sum_memory[local + half];
        }
        workgroupBarrier();
    }
    let sum = sum_memory[0];
    workgroupBarrier();
    return sum;
}

fn group_sums(values: vec2<f32>, local: u32) -> vec2<f32> {
    let first = group_sum(values.x, local);
    return vec2<f32>(first, group_sum(values.y, local));
}
