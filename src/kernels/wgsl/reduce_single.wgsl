// reduce_single - part `reduce` for LANES = 1 (software devices): the lane has the whole row, nothing to join, no barrier.
fn reduce_sum(value: f32, lane: u32) -> f32 {
    return value;
}

fn reduce_max(value: f32, lane: u32) -> f32 {
    return value;
}
