// Vectors in workgroup memory: made once for a workgroup by a prologue that is dear, or read by many lanes.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16
//! end
var<workgroup> x_memory: array<vec4<f32>, X_GROUPS * 4u * N_X>;

//! part prologue
//! include matvec_prologue_plain
//! end

fn x_fill(local: u32) {
    prologue_begin(local);
    let n_four = (params.k + 15u) / 16u * 4u;
    for (var n = 0u; n < N_X; n++) {
        for (var i = local; i < n_four; i += WG) {
            x_memory[n * X_GROUPS * 4u + i] = prologue_at(n, i);
        }
    }
    workgroupBarrier();
}

fn x_at(n: u32, group: u32) -> mat4x4<f32> {
    let i = (n * X_GROUPS + group) * 4u;
    return mat4x4<f32>(x_memory[i], x_memory[i + 1u], x_memory[i + 2u], x_memory[i + 3u]);
}

fn x_sum(n: u32, group: u32, v: mat4x4<f32>) -> f32 {
    return dot(v[0] + v[1] + v[2] + v[3], vec4<f32>(1.0));
}
