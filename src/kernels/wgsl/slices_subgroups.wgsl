// slices_subgroups - part `slices` of attention_decode with subgroups of at least 8: the 8 lanes of a key are neighbours.
fn slices_join(own: array<f32, KEYS_EACH * HEADS>, n_key: u32, lane: u32) {
    for (var k = 0u; k < KEYS_EACH; k++) {
        let key = k * SLOTS + lane / SLICES;
        for (var h = 0u; h < HEADS; h++) {
            var sum = own[k * HEADS + h];
            sum += subgroupShuffleXor(sum, 1u);
            sum += subgroupShuffleXor(sum, 2u);
            sum += subgroupShuffleXor(sum, 4u);
            if (lane % SLICES == h) {
                scores[key * HEADS + h] = select(LEAST, sum, key < n_key);
            }
        }
    }
}
