// Vectors in workgroup memory, rounded to int8 in blocks of 32. k is a multiple of 32.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, even
//! end
var<workgroup> x_memory: array<vec4<u32>, X_GROUPS * N_X>;
var<workgroup> x_scales: array<vec2<u32>, X_GROUPS / 2u * N_X>; // scale as bits; sums as two i16

//! part prologue
//! include matvec_prologue_plain
//! end
//! include matvec_quants

fn x_fill(local: u32) {
    prologue_begin(local);
    for (var n = 0u; n < N_X; n++) {
        for (var b = local; b < params.k / 32u; b += WG) {
            let i = b * 8u;
            let block = block_of(
                mat4x4<f32>(prologue_at(n, i), prologue_at(n, i + 1u), prologue_at(n, i + 2u), prologue_at(n, i + 3u)),
                mat4x4<f32>(prologue_at(n, i + 4u), prologue_at(n, i + 5u), prologue_at(n, i + 6u), prologue_at(n, i + 7u)));
            x_memory[n * X_GROUPS + b * 2u] = block.first;
            x_memory[n * X_GROUPS + b * 2u + 1u] = block.second;
            x_scales[n * (X_GROUPS / 2u) + b] =
                vec2<u32>(bitcast<u32>(block.scale), block_sums(block));
        }
    }
    workgroupBarrier();
}

//! include matvec_x_int8_read
