// Joins the sums of LANES neighbouring lanes of a subgroup; LANES is at most the subgroup's size. All get them.
fn reduce(sums: ptr<function, array<f32, ITEMS>>, local: u32) {
    for (var i = 0u; i < ITEMS; i++) {
        var sum = (*sums)[i];
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            sum += subgroupShuffleXor(sum, step);
        }
        (*sums)[i] = sum;
    }
}
