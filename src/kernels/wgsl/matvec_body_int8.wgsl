// Body of matvec over int8 vectors (blocks of 32, each with a scale): integer dot products. What a chunk of a type becomes
// and how it meets a vector is in matvec_int8_*, which include this:
//   PART_weights  a chunk, unpacked: once for all vectors;   PART_unpack  makes it
//   PART_vector   what it needs of vector n;   PART_product  of both
// chunk: its number in the row; turn: the same modulo 8 at least, and where possible the same in all steps of a lane, so
// that what follows from it is worked out before the loop.
// The vectors: x_quants(n, four, half, second) gives half of the first or second block of 64 elements `four`; x_block(n, block)
// a block's scale and the sum of its quants, scaled; x_pair(n, four) those of both blocks, where k is a multiple of 64.
//! include matvec_rows
//! include matvec_dots

var<private> PART_ahead: array<PART_chunk, DEPTH * ROWS * PER>;

// All loads of a step, and no arithmetic: they are under way while something else is worked out.
fn PART_fetch(tile: u32, first: u32, local: u32) {
    let n_chunk = matrix_chunks(params.PART_k >> PART_SHIFT);
    for (var j = 0u; j < DEPTH * ROWS * PER; j++) {
        let r = j % (ROWS * PER);
        let chunk = min(first + j / (ROWS * PER) * LANES, n_chunk - 1u);
        PART_ahead[j] = PART_load(PART_plane(r % PER), PART_row(tile, local / LANES, r / PER, chunk), matrix_chunk(chunk));
    }
}

// PART_ahead holds the first step of this tile; in the end it holds that of tile `next`, unless that is NONE.
fn PART_tile(tile: u32, next: u32, local: u32) {
    var sums: array<f32, ITEMS>;
    let n_chunk = matrix_chunks(params.PART_k >> PART_SHIFT);
    for (var first = local % LANES; first < n_chunk; first += LANES * DEPTH) {
        var chunks = PART_ahead;
        let following = first + LANES * DEPTH;
        let more = following < n_chunk;
        if (more || next != NONE) {
            PART_fetch(select(next, tile, more), select(local % LANES, following, more), local);
        }
        for (var d = 0u; d < DEPTH; d++) {
            let chunk = first + d * LANES;
            if (DEPTH > 1u && chunk >= n_chunk) {
                continue;
            }
            let turn = select(chunk, local % LANES, LANES % 8u == 0u);
            var weights: array<PART_weights, ROWS * PER>;
            for (var r = 0u; r < ROWS * PER; r++) {
                weights[r] = PART_unpack(chunks[d * ROWS * PER + r], turn);
            }
            for (var n = 0u; n < N_X; n++) {
                let x = PART_vector(n, chunk, turn);
                for (var r = 0u; r < ROWS * PER; r++) {
                    sums[((r / PER) * N_X + n) * PER + r % PER] += PART_product(weights[r], x);
                }
            }
        }
    }
    PART_end(tile, local, &sums);
}
