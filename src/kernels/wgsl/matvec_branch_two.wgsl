// The branch that matvec_prologue_add_norm takes in, of two: rms(branch) * w + rms(twin) * w'. branch, twin: [n_x, k];
// w, w' in norms, at the words norm_own and norm_twin.
//! param branch_offset: u32
//! param branch_stride: u32
//! param twin_offset: u32
//! param twin_stride: u32
//! param norm_own: u32
//! param norm_twin: u32
//! param eps_own: f32
//! param eps_twin: f32
@group(0) @binding(1) var<storage, read> branch: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> twin: array<vec4<f32>>;

fn branch_own(n: u32, local: u32, b: ptr<function, array<vec4<f32>, X_EACH>>) { // the fours of this invocation
    let fours = params.k / 4u;
    let first = (params.branch_offset + x_row(n) * params.branch_stride) / 4u;
    let second = (params.twin_offset + x_row(n) * params.twin_stride) / 4u;
    var c: array<vec4<f32>, X_EACH>;
    var w1: array<vec4<f32>, X_EACH>;
    var w2: array<vec4<f32>, X_EACH>;
    for (var e = 0u; e < X_EACH; e++) {
        let i = min(x_own(e, local), fours - 1u);
        (*b)[e] = branch[first + i];
        c[e] = twin[second + i];
        w1[e] = norms[params.norm_own / 4u + i];
        w2[e] = norms[params.norm_twin / 4u + i];
    }
    var sums = vec2<f32>(0.0);
    for (var e = 0u; e < X_EACH; e++) {
        sums += select(vec2<f32>(0.0), vec2<f32>(dot((*b)[e], (*b)[e]), dot(c[e], c[e])), x_own(e, local) < fours);
    }
    let factor = inverseSqrt(group_sum(sums.x, local) / f32(params.k) + params.eps_own);
    let other = inverseSqrt(group_sum(sums.y, local) / f32(params.k) + params.eps_twin);
    for (var e = 0u; e < X_EACH; e++) {
        (*b)[e] = (*b)[e] * factor * w1[e] + c[e] * other * w2[e];
    }
}
