// reduce_subgroups - part `reduce` with subgroups: sums within a subgroup, then over the LANES / size subgroups of a row
// through workgroup memory. The size is counted, not assumed; it must be at most LANES.
var<workgroup> reduce_memory: array<f32, 64>;

fn reduce_join(lane: u32, size: u32, value: f32) -> u32 { // gives the row's first slot
    workgroupBarrier(); // the slots may still be read by an earlier call
    if (lane % size == 0u) {
        reduce_memory[lane / size] = value;
    }
    workgroupBarrier();
    return lane / LANES * (LANES / size);
}

fn reduce_sum(value: f32, lane: u32) -> f32 {
    let size = subgroupAdd(1u);
    let first = reduce_join(lane, size, subgroupAdd(value));
    var sum = 0.0;
    for (var i = 0u; i < LANES / size; i++) {
        sum += reduce_memory[first + i];
    }
    return sum;
}

fn reduce_max(value: f32, lane: u32) -> f32 {
    let size = subgroupAdd(1u);
    let first = reduce_join(lane, size, subgroupMax(value));
    var most = reduce_memory[first];
    for (var i = 1u; i < LANES / size; i++) {
        most = max(most, reduce_memory[first + i]);
    }
    return most;
}
