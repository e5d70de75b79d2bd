// Vectors x = rms(h) * w: [n_x, k] at x_stride, k a multiple of 16; w in norms, at word `norm`.
//! param norm: u32
//! param eps: f32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norms: array<vec4<f32>>; // tensors of the model, each at a multiple of 16 bytes

//! part sum
//! include matvec_sum
//! end
//! include matvec_held

fn prologue_begin(local: u32) {
    let fours = params.k / 4u;
    for (var n = 0u; n < N_X; n++) {
        let start = (params.x_offset + x_row(n) * params.x_stride) / 4u;
        var w: array<vec4<f32>, X_EACH>;
        var sum = 0.0;
        for (var e = 0u; e < X_EACH; e++) {
            let i = min(x_own(e, local), fours - 1u);
            held[n * X_EACH + e] = x[start + i];
            w[e] = norms[params.norm / 4u + i];
        }
        for (var e = 0u; e < X_EACH; e++) {
            let h = held[n * X_EACH + e];
            sum += select(0.0, dot(h, h), x_own(e, local) < fours);
        }
        let factor = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps);
        for (var e = 0u; e < X_EACH; e++) {
            held[n * X_EACH + e] *= factor * w[e];
        }
    }
}
