// Vectors in workgroup memory: made once for a workgroup by a prologue that is dear, or read by many lanes.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, a multiple of 4
//! end
var<workgroup> x_memory: array<vec4<f32>, X_GROUPS * 4u * N_X>;

const X_EACH: u32 = (X_GROUPS * 4u + WG - 1u) / WG;

fn x_own(e: u32, local: u32) -> u32 { // the e-th four that an invocation works at
    return e * WG + local;
}

//! part prologue
//! include matvec_prologue_plain
//! end

fn x_fill(local: u32) {
    prologue_begin(local);
    let n_four = (params.k + 15u) / 16u * 4u;
    for (var n = 0u; n < N_X; n++) {
        for (var e = 0u; e < X_EACH; e++) {
            let i = x_own(e, local);
            if (i < n_four) {
                x_memory[x_place(n, i)] = prologue_own(n, e, i);
            }
        }
    }
    workgroupBarrier();
}

// Lanes read fours that are 8 or 16 apart at once: turned within eights, so that these lie in different banks.
fn x_place(n: u32, i: u32) -> u32 {
    return n * X_GROUPS * 4u + (i ^ ((i >> 4u) & 7u));
}

fn x_at(n: u32, group: u32) -> mat4x4<f32> {
    let i = group * 4u;
    return mat4x4<f32>(x_memory[x_place(n, i)], x_memory[x_place(n, i + 1u)], x_memory[x_place(n, i + 2u)], x_memory[x_place(n, i + 3u)]);
}

fn x_sum(n: u32, group: u32, v: mat4x4<f32>) -> f32 {
    return dot(v[0] + v[1] + v[2] + v[3], vec4<f32>(1.0));
}
