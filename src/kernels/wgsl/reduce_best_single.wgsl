// reduce_best_single - part `reduce_best` for LANES = 1 (software devices): nothing to join, no barrier.
fn reduce_best(value: vec2<u32>, lane: u32) -> vec2<u32> {
    return value;
}
