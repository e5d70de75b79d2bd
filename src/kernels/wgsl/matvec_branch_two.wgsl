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

var<private> branch_twin: array<vec4<f32>, X_EACH>;
var<private> branch_w: array<vec4<f32>, X_EACH>;
var<private> branch_w_twin: array<vec4<f32>, X_EACH>;

fn branch_load(n: u32, local: u32, b: ptr<function, array<vec4<f32>, X_EACH>>) { // the fours of this invocation
    let first = (params.branch_offset + x_row(n) * params.branch_stride) / 4u;
    let second = (params.twin_offset + x_row(n) * params.twin_stride) / 4u;
    for (var e = 0u; e < X_EACH; e++) {
        let i = min(x_own(e, local), params.k / 4u - 1u);
        (*b)[e] = branch[first + i];
        branch_twin[e] = twin[second + i];
        branch_w[e] = norms[params.norm_own / 4u + i];
        branch_w_twin[e] = norms[params.norm_twin / 4u + i];
    }
}

fn branch_join(local: u32, b: ptr<function, array<vec4<f32>, X_EACH>>) {
    var sums = vec2<f32>(0.0);
    for (var e = 0u; e < X_EACH; e++) {
        let c = branch_twin[e];
        sums += select(vec2<f32>(0.0), vec2<f32>(dot((*b)[e], (*b)[e]), dot(c, c)), x_own(e, local) < params.k / 4u);
    }
    let factors = inverseSqrt(group_sums(sums, local) / f32(params.k) + vec2<f32>(params.eps_own, params.eps_twin));
    for (var e = 0u; e < X_EACH; e++) {
        (*b)[e] = (*b)[e] * factors.x * branch_w[e] + branch_twin[e] * factors.y * branch_w_twin[e];
    }
}
