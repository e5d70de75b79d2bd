// The branch that matvec_prologue_add_norm takes in, as it lies: [n_x, k].
//! param branch_offset: u32
//! param branch_stride: u32
@group(0) @binding(1) var<storage, read> branch: array<vec4<f32>>;

fn branch_load(n: u32, local: u32, b: ptr<function, array<vec4<f32>, X_EACH>>) { // the fours of this invocation
    let start = (params.branch_offset + x_row(n) * params.branch_stride) / 4u;
    for (var e = 0u; e < X_EACH; e++) {
        (*b)[e] = branch[start + min(x_own(e, local), params.k / 4u - 1u)];
    }
}

fn branch_join(local: u32, b: ptr<function, array<vec4<f32>, X_EACH>>) {
}
