// Body of matvec over f32 vectors, in little code: fastest where a lane has rows of its own.
fn PART_all(chunks: ptr<function, array<PART_chunk, DEPTH * ROWS * PER>>, sums: ptr<function, array<f32, ITEMS>>, d: u32,
        chunk: u32, turn: u32) {
    for (var i = 0u; i < PART_GROUPS; i += PART_STEP) {
        PART_step(chunks, sums, d, chunk, turn, i);
    }
}

//! include matvec_f32_step
