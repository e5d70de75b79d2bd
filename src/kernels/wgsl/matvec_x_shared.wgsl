// Vectors in workgroup memory: made once for a workgroup by a prologue that is dear, or read by many lanes.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, a multiple of 4
//! end
const X_PLANE: u32 = X_GROUPS / 4u;
const X_SKEW: u32 = 8u; // what the planes leave free
var<workgroup> x_memory: array<vec4<f32>, (X_GROUPS * 4u + X_SKEW) * N_X>;

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
                x_memory[x_place(n, i / 16u, (i >> 2u) & 1u, (i >> 3u) & 1u) + (i & 3u) * X_PLANE] = prologue_own(n, e, i);
            }
        }
    }
    workgroupBarrier();
}

// The fours lie in 16 planes by their number mod 16: lanes that read 8 or 16 apart at once find them in different banks, and
// what one lane reads of a chunk lies a constant apart.
fn x_place(n: u32, four: u32, half: u32, second: u32) -> u32 { // first four of the group
    return n * (X_GROUPS * 4u + X_SKEW) + four + half * (4u * X_PLANE + 1u) + second * (8u * X_PLANE + 4u);
}

fn x_at(n: u32, four: u32, half: u32, second: u32) -> mat4x4<f32> {
    let i = x_place(n, four, half, second);
    return mat4x4<f32>(x_memory[i], x_memory[i + X_PLANE], x_memory[i + 2u * X_PLANE], x_memory[i + 3u * X_PLANE]);
}
