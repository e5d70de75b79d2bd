// Vectors rounded to int8 in blocks of 32, k a multiple of 32, and kept: in workgroup memory, or where part keep says.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, a multiple of 4
//! end
const X_EACH: u32 = (X_GROUPS / 2u + WG - 1u) / WG * 8u; // whole blocks

fn x_own(e: u32, local: u32) -> u32 { // the e-th four that an invocation works at
    return (e / 8u * WG + local) * 8u + e % 8u;
}

//! part prologue
//! include matvec_prologue_plain
//! end
//! include matvec_quants

fn x_fill(local: u32) {
    prologue_begin(local);
    for (var n = 0u; n < N_X; n++) {
        for (var e = 0u; e < X_EACH; e += 8u) {
            let b = x_own(e, local) / 8u;
            if (b >= params.k / 32u) {
                continue;
            }
            var v: array<vec4<f32>, 8>;
            for (var j = 0u; j < 8u; j++) {
                v[j] = prologue_own(n, e + j, b * 8u + j);
            }
            let block = block_of(mat4x4<f32>(v[0], v[1], v[2], v[3]), mat4x4<f32>(v[4], v[5], v[6], v[7]));
            x_keep(n, b * 2u, block.first);
            x_keep(n, b * 2u + 1u, block.second);
            x_keep_block(n, b, vec2<u32>(bitcast<u32>(block.scale), block_sums(block)));
        }
    }
    workgroupBarrier();
}

//! part keep
//! include matvec_x_int8_read
//! end
