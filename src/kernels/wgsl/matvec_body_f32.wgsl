// Body of matvec over f32 vectors. Block types: sums of q * x and of x by 16, scaled once for each.
//! include matvec_rows

fn PART_dot(q: vec4<u32>, x: mat4x4<f32>) -> f32 {
    return dot(vec4<f32>(unpack4xI8(q.x)), x[0]) + dot(vec4<f32>(unpack4xI8(q.y)), x[1]) +
        dot(vec4<f32>(unpack4xI8(q.z)), x[2]) + dot(vec4<f32>(unpack4xI8(q.w)), x[3]);
}

fn PART_tile(tile: u32, local: u32) {
    var sums: array<f32, ITEMS>;
    let n_chunk = (params.PART_k + (1u << PART_SHIFT) - 1u) >> PART_SHIFT;
    for (var chunk = local % LANES; chunk < n_chunk; chunk += LANES) {
        var c: array<PART_chunk, ROWS * PER>;
        for (var r = 0u; r < ROWS * PER; r++) {
            c[r] = PART_load(PART_plane(r % PER), PART_row(tile, local / LANES, r / PER), chunk);
        }
        for (var i = 0u; i < PART_GROUPS; i++) {
            let group = PART_group(chunk, i);
            for (var n = 0u; n < N_X; n++) {
                let x = x_at(n, group);
                if (PART_FLOAT) {
                    for (var r = 0u; r < ROWS * PER; r++) {
                        let v = PART_values(c[r], chunk, i);
                        sums[((r / PER) * N_X + n) * PER + r % PER] += dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]);
                    }
                } else {
                    let sum = x_sum(n, group, x);
                    for (var r = 0u; r < ROWS * PER; r++) {
                        let s = PART_scale(c[r], chunk, i);
                        let least = s.x * f32(PART_ZERO) + s.y;
                        sums[((r / PER) * N_X + n) * PER + r % PER] += s.x * PART_dot(PART_quants(c[r], chunk, i), x) - least * sum;
                    }
                }
            }
        }
    }
    PART_end(tile, local, &sums);
}
