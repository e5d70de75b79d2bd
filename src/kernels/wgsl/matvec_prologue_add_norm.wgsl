// The stream takes in a branch, h' = s * (h + rms(b) * w1), and is the vectors, or with SECOND normed again: rms(h') * w2.
// Every workgroup works h' out; the first alone stores it, where nobody reads. h (as x), b, h_out: [n_x, k], k a multiple
// of 16; w1, w2 and s (one number, where SCALED) lie in norms, at the words norm_branch, norm and scale.
// Each invocation keeps its own fours (x_own) of a vector in registers: all loads are under way at once, before the first sum
// is waited for, and none is done twice.
//! options
const SCALED: bool = false;
const SECOND: bool = true;
//! end
//! param stream_offset: u32
//! param stream_stride: u32
//! param norm_branch: u32
//! param norm: u32
//! param scale: u32
//! param eps: f32
//! param eps_branch: f32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norms: array<vec4<f32>>; // tensors of the model, each at a multiple of 16 bytes
@group(0) @binding(1) var<storage, read_write> stream: array<vec4<f32>>;

//! part sum
//! include matvec_sum
//! end
//! include matvec_held

//! part branch
//! include matvec_branch_one
//! end

fn prologue_begin(local: u32) {
    let fours = params.k / 4u;
    for (var n = 0u; n < N_X; n++) {
        let start = (params.x_offset + x_row(n) * params.x_stride) / 4u;
        var b: array<vec4<f32>, X_EACH>;
        var w1: array<vec4<f32>, X_EACH>;
        var w2: array<vec4<f32>, X_EACH>;
        var sum = 0.0;
        var scale = 1.0;
        branch_load(n, local, &b);
        if (SCALED) {
            scale = norms[params.scale / 4u].x;
        }
        for (var e = 0u; e < X_EACH; e++) {
            let i = min(x_own(e, local), fours - 1u);
            held[n * X_EACH + e] = x[start + i];
            w1[e] = norms[params.norm_branch / 4u + i];
            if (SECOND) {
                w2[e] = norms[params.norm / 4u + i];
            }
        }
        branch_join(local, &b);
        for (var e = 0u; e < X_EACH; e++) {
            sum += select(0.0, dot(b[e], b[e]), x_own(e, local) < fours);
        }
        let factor = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps_branch);
        sum = 0.0;
        for (var e = 0u; e < X_EACH; e++) {
            let h = (held[n * X_EACH + e] + b[e] * factor * w1[e]) * scale;
            held[n * X_EACH + e] = h;
            let i = x_own(e, local);
            sum += select(0.0, dot(h, h), i < fours);
            if (group_number == 0u && i < fours && x_first + n < params.n_x) {
                stream[(params.stream_offset + (x_first + n) * params.stream_stride) / 4u + i] = h;
            }
        }
        if (SECOND) {
            let again = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps);
            for (var e = 0u; e < X_EACH; e++) {
                held[n * X_EACH + e] *= again * w2[e];
            }
        }
    }
}
