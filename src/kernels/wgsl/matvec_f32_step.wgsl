// What the bodies of matvec over f32 vectors share; they differ in PART_all, which takes PART_step over a chunk. Block types:
// quants become floats by their bits, and sums of q * x are scaled once for all groups with one scale. turn: the chunk's
// number modulo 8 at least, and where possible the same in all steps of a lane, so that what follows from it is worked out
// before the loop.
//! include matvec_rows

// One lane a row is a processor: it has few registers.
const PART_STEP: u32 = select(1u, 2u, PART_PAIRED && !SOFTWARE); // groups that are scaled together

fn PART_x(n: u32, chunk: u32, turn: u32, i: u32) -> mat4x4<f32> { // what group i of the chunk meets
    let group = PART_group(turn, i);
    return x_at(n, (chunk - turn) * PART_GROUPS / 4u + group / 4u, group & 1u, (group >> 1u) & 1u);
}

fn PART_four_more(start: f32, w: vec4<f32>, x: vec4<f32>) -> f32 {
    return w.w * x.w + (w.z * x.z + (w.y * x.y + (w.x * x.x + start)));
}

fn PART_more(start: f32, w: mat4x4<f32>, x: mat4x4<f32>) -> f32 {
    if (SOFTWARE) {
        return start + dot(w[0], x[0]) + dot(w[1], x[1]) + dot(w[2], x[2]) + dot(w[3], x[3]);
    }
    return PART_four_more(PART_four_more(PART_four_more(PART_four_more(start, w[0], x[0]), w[1], x[1]), w[2], x[2]), w[3], x[3]);
}

fn PART_given(c: PART_chunk, turn: u32, i: u32) -> mat4x4<f32> { // what is summed; block types are scaled later
    if (PART_FLOAT) {
        return PART_values(c, turn, i);
    }
    return PART_floats(c, turn, i);
}

// Group i of the chunk, and the next where both have one scale.
fn PART_step(chunks: ptr<function, array<PART_chunk, DEPTH * ROWS * PER>>, sums: ptr<function, array<f32, ITEMS>>, d: u32,
        chunk: u32, turn: u32, i: u32) {
    for (var n = 0u; n < N_X; n++) {
        var products: array<f32, ROWS * PER>;
        let x = PART_x(n, chunk, turn, i);
        var four = x[0] + x[1] + x[2] + x[3];
        for (var r = 0u; r < ROWS * PER; r++) {
            products[r] = PART_more(0.0, PART_given((*chunks)[d * ROWS * PER + r], turn, i), x);
        }
        if (PART_STEP == 2u) {
            let y = PART_x(n, chunk, turn, i + 1u);
            four += y[0] + y[1] + y[2] + y[3];
            for (var r = 0u; r < ROWS * PER; r++) {
                products[r] = PART_more(products[r], PART_given((*chunks)[d * ROWS * PER + r], turn, i + 1u), y);
            }
        }
        for (var r = 0u; r < ROWS * PER; r++) {
            var sum = products[r];
            if (!PART_FLOAT) {
                let s = PART_scale((*chunks)[d * ROWS * PER + r], turn, i);
                sum = s.x * sum;
                if (PART_LEAST) {
                    sum -= s.y * (four.x + four.y + four.z + four.w);
                }
            }
            (*sums)[((r / PER) * N_X + n) * PER + r % PER] += sum;
        }
    }
}

var<private> PART_ahead: array<PART_chunk, DEPTH * ROWS * PER>;

// All loads of a step, and no arithmetic: they are under way while something else is worked out.
fn PART_fetch(tile: u32, first: u32, local: u32) {
    let n_chunk = matrix_chunks((params.PART_k + (1u << PART_SHIFT) - 1u) >> PART_SHIFT);
    for (var j = 0u; j < DEPTH * ROWS * PER; j++) {
        let r = j % (ROWS * PER);
        let chunk = min(first + j / (ROWS * PER) * LANES, n_chunk - 1u);
        PART_ahead[j] = PART_load(PART_plane(r % PER), PART_row(tile, local / LANES, r / PER, chunk), matrix_chunk(chunk));
    }
}

// PART_ahead holds the first step of this tile; in the end it holds that of tile `next`, unless that is NONE.
fn PART_tile(tile: u32, next: u32, local: u32) {
    var sums: array<f32, ITEMS>;
    let n_chunk = matrix_chunks((params.PART_k + (1u << PART_SHIFT) - 1u) >> PART_SHIFT);
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
            PART_all(&chunks, &sums, d, chunk, turn);
        }
    }
    PART_end(tile, local, &sums);
}
