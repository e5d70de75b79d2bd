// Body of matvec over f32 vectors, where many lanes share a row: without a loop over a chunk, which some drivers would leave as
// it is, and then find the groups' places and shifts anew in each round.
fn PART_all(chunks: ptr<function, array<PART_chunk, DEPTH * ROWS * PER>>, sums: ptr<function, array<f32, ITEMS>>, d: u32,
        chunk: u32, turn: u32) {
    PART_step(chunks, sums, d, chunk, turn, 0u);
    if (PART_GROUPS > PART_STEP) {
        PART_step(chunks, sums, d, chunk, turn, PART_STEP);
    }
    if (PART_GROUPS > 2u * PART_STEP) {
        PART_step(chunks, sums, d, chunk, turn, 2u * PART_STEP);
        PART_step(chunks, sums, d, chunk, turn, 3u * PART_STEP);
    }
}

//! include matvec_f32_step
