// Body of matvec over f32 vectors. Block types: quants become floats by their bits, and sums of q * x are scaled once for
// all groups with one scale. turn: the chunk's number modulo 8 at least, and where possible the same in all steps of a lane,
// so that what follows from it is worked out before the loop.
//! include matvec_rows

const PART_STEP: u32 = select(1u, 2u, PART_PAIRED); // groups with one scale

fn PART_x(n: u32, chunk: u32, turn: u32, i: u32) -> mat4x4<f32> { // what group i of the chunk meets
    let group = PART_group(turn, i);
    return x_at(n, (chunk - turn) * PART_GROUPS / 4u + group / 4u, group & 1u, (group >> 1u) & 1u);
}

fn PART_dot(start: vec4<f32>, w: mat4x4<f32>, x: mat4x4<f32>) -> vec4<f32> {
    return fma(w[3], x[3], fma(w[2], x[2], fma(w[1], x[1], fma(w[0], x[0], start))));
}

// Group i of the chunk, and the one with the same scale.
fn PART_step(chunks: ptr<function, array<PART_chunk, DEPTH * ROWS * PER>>, sums: ptr<function, array<f32, ITEMS>>, d: u32,
        chunk: u32, turn: u32, i: u32) {
    for (var n = 0u; n < N_X; n++) {
        let x0 = PART_x(n, chunk, turn, i);
        let x1 = PART_x(n, chunk, turn, i + PART_STEP - 1u);
        var sum = 0.0; // of x
        if (PART_LEAST) {
            var v = x0[0] + x0[1] + x0[2] + x0[3];
            if (PART_PAIRED) {
                v += x1[0] + x1[1] + x1[2] + x1[3];
            }
            sum = v.x + v.y + v.z + v.w;
        }
        for (var r = 0u; r < ROWS * PER; r++) {
            let j = d * ROWS * PER + r;
            let to = ((r / PER) * N_X + n) * PER + r % PER;
            if (PART_FLOAT) {
                let product = PART_dot(vec4<f32>(0.0), PART_values((*chunks)[j], turn, i), x0);
                (*sums)[to] += product.x + product.y + product.z + product.w;
            } else {
                let s = PART_scale((*chunks)[j], turn, i);
                var product = PART_dot(vec4<f32>(0.0), PART_floats((*chunks)[j], turn, i), x0);
                if (PART_PAIRED) {
                    product = PART_dot(product, PART_floats((*chunks)[j], turn, i + PART_STEP - 1u), x1);
                }
                (*sums)[to] += s.x * (product.x + product.y + product.z + product.w) - s.y * sum;
            }
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
            PART_step(&chunks, &sums, d, chunk, turn, 0u); // by name rather than in a loop: drivers leave loops of this size as they are
            if (PART_GROUPS > PART_STEP) {
                PART_step(&chunks, &sums, d, chunk, turn, PART_STEP);
            }
            if (PART_GROUPS > 2u * PART_STEP) {
                PART_step(&chunks, &sums, d, chunk, turn, 2u * PART_STEP);
                PART_step(&chunks, &sums, d, chunk, turn, 3u * PART_STEP);
            }
        }
    }
    PART_end(tile, local, &sums);
}
