// Vectors x = rms(h) * w: [n_x, k] at x_stride, k a multiple of 16; w in norms, at word `norm`.
//! param norm: u32
//! param eps: f32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norms: array<vec4<f32>>; // tensors of the model, each at a multiple of 16 bytes

//! part sum
//! include matvec_sum
//! end

var<private> norm_factor: array<f32, N_X>;

fn prologue_h(n: u32, i: u32) -> vec4<f32> {
    return x[(params.x_offset + x_row(n) * params.x_stride) / 4u + i];
}

fn prologue_begin(local: u32) {
    for (var n = 0u; n < N_X; n++) {
        var sum = 0.0;
        for (var i = local; i < params.k / 4u; i += WG) {
            let h = prologue_h(n, i);
            sum += dot(h, h);
        }
        norm_factor[n] = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps);
    }
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> {
    return prologue_h(n, i) * norm_factor[n] * norms[params.norm / 4u + i];
}
