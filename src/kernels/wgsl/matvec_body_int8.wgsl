// Body of matvec over int8 vectors (blocks of 32 with a scale, and the sums of their halves): integer dot products.
//! include matvec_rows

fn PART_dot(q: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y) + dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w);
}

fn PART_tile(tile: u32, local: u32) {
    var sums: array<f32, ITEMS>;
    let n_chunk = params.PART_k >> PART_SHIFT;
    for (var chunk = local % LANES; chunk < n_chunk; chunk += LANES) {
        var c: array<PART_chunk, ROWS * PER>;
        for (var r = 0u; r < ROWS * PER; r++) {
            c[r] = PART_load(PART_plane(r % PER), PART_row(tile, local / LANES, r / PER), chunk);
        }
        if (PART_PAIRED) {
            for (var i = 0u; i < PART_GROUPS; i += 2u) {
                let group = PART_group(chunk, i);
                for (var n = 0u; n < N_X; n++) {
                    let block = x_block(n, group >> 1u);
                    let x0 = x_quants(n, group);
                    let x1 = x_quants(n, group + 1u);
                    let sum = block.y + block.z;
                    for (var r = 0u; r < ROWS * PER; r++) {
                        let s = PART_scale(c[r], chunk, i);
                        let q = PART_dot(PART_quants(c[r], chunk, i), x0) + PART_dot(PART_quants(c[r], chunk, i + 1u), x1);
                        sums[((r / PER) * N_X + n) * PER + r % PER] +=
                            block.x * (s.x * (f32(q) - f32(PART_ZERO) * sum) - s.y * sum);
                    }
                }
            }
        } else {
            for (var i = 0u; i < PART_GROUPS; i++) {
                let group = PART_group(chunk, i);
                for (var n = 0u; n < N_X; n++) {
                    let block = x_block(n, group >> 1u);
                    let x0 = x_quants(n, group);
                    let sum = select(block.y, block.z, (group & 1u) != 0u);
                    for (var r = 0u; r < ROWS * PER; r++) {
                        let s = PART_scale(c[r], chunk, i);
                        let q = PART_dot(PART_quants(c[r], chunk, i), x0);
                        sums[((r / PER) * N_X + n) * PER + r % PER] +=
                            block.x * (s.x * (f32(q) - f32(PART_ZERO) * sum) - s.y * sum);
                    }
                }
            }
        }
    }
    PART_end(tile, local, &sums);
}
