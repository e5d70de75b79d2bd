// slices_subgroups - part `slices` of attention_decode with subgroups of at least 8: the 8 lanes of a key are neighbours.
fn slices_join(scores: array<f32, KEYS_EACH * HEADS>, lane: u32) {
    for (var k = 0u; k < KEYS_EACH; k++) {
        for (var h = 0u; h < HEADS; h++) {
            var sum = scores[k * HEADS + h];
            sum += subgroupShuffleXor(sum, 1u);
            sum += subgroupShuffleXor(sum, 2u);
            sum += subgroupShuffleXor(sum, 4u);
            if (lane % SLICES == h) {
                weights[(k * SLOTS + lane / SLICES) * HEADS + h] = sum;
            }
        }
    }
}
