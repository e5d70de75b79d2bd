// Body of matvec over int8 vectors (blocks of 32 with a scale, and the sums of their halves): integer dot products.
//! include matvec_rows

const PART_STEP: u32 = select(1u, 2u, PART_PAIRED); // groups with one scale

fn PART_dot(q: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y) + dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w);
}

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
            if (chunk >= n_chunk) {
                continue;
            }
            for (var i = 0u; i < PART_GROUPS; i += PART_STEP) {
                let group = PART_group(chunk, i);
                var scales: array<vec2<f32>, ROWS * PER>; // of the weights: once for all vectors
                var quants: array<vec4<u32>, ROWS * PER * PART_STEP>;
                for (var r = 0u; r < ROWS * PER; r++) {
                    let j = d * ROWS * PER + r;
                    scales[r] = PART_scale(chunks[j], chunk, i);
                    quants[r * PART_STEP] = PART_quants(chunks[j], chunk, i);
                    if (PART_PAIRED) {
                        quants[r * PART_STEP + PART_STEP - 1u] = PART_quants(chunks[j], chunk, i + 1u);
                    }
                }
                for (var n = 0u; n < N_X; n++) {
                    let block = x_block(n, group >> 1u);
                    let x0 = x_quants(n, group);
                    let x1 = x_quants(n, group + PART_STEP - 1u);
                    let sum = select(select(block.y, block.z, (group & 1u) != 0u), block.y + block.z, PART_PAIRED);
                    for (var r = 0u; r < ROWS * PER; r++) {
                        var q = PART_dot(quants[r * PART_STEP], x0);
                        if (PART_PAIRED) {
                            q += PART_dot(quants[r * PART_STEP + PART_STEP - 1u], x1);
                        }
                        let value = scales[r].x * (f32(q) - f32(PART_ZERO) * sum) - scales[r].y * sum;
                        sums[((r / PER) * N_X + n) * PER + r % PER] += block.x * value;
                    }
                }
            }
        }
    }
    PART_end(tile, local, &sums);
}
