// Body of matvec over f32 vectors. Block types: sums of q * x and of x by 16, scaled once for each.
//! include matvec_rows

fn PART_dot(q: vec4<u32>, x: mat4x4<f32>) -> f32 {
    return dot(vec4<f32>(unpack4xI8(q.x)), x[0]) + dot(vec4<f32>(unpack4xI8(q.y)), x[1]) +
        dot(vec4<f32>(unpack4xI8(q.z)), x[2]) + dot(vec4<f32>(unpack4xI8(q.w)), x[3]);
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
            if (chunk >= n_chunk) {
                continue;
            }
            for (var i = 0u; i < PART_GROUPS; i++) {
                let group = PART_group(chunk, i);
                for (var n = 0u; n < N_X; n++) {
                    let x = x_at(n, group);
                    let sum = x_sum(n, group, x);
                    for (var r = 0u; r < ROWS * PER; r++) {
                        let j = d * ROWS * PER + r;
                        let to = ((r / PER) * N_X + n) * PER + r % PER;
                        if (PART_FLOAT) {
                            let v = PART_values(chunks[j], chunk, i);
                            sums[to] += dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]);
                        } else {
                            let s = PART_scale(chunks[j], chunk, i);
                            let q = PART_dot(PART_quants(chunks[j], chunk, i), x);
                            sums[to] += s.x * q - (s.x * f32(PART_ZERO) + s.y) * sum;
                        }
                    }
                }
            }
        }
    }
    PART_end(tile, local, &sums);
}
