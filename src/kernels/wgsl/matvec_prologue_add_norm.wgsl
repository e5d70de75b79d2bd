// The stream takes in a branch, h' = s * (h + rms(b) * w1), and is the vectors, or with SECOND normed again: rms(h') * w2.
// Every workgroup works h' out; the first alone stores it, where nobody reads. h (as x), b, h_out: [n_x, k], k a multiple
// of 16; w1, w2 and s (one number, where SCALED) lie in norms, at the words norm_branch, norm and scale.
//! options
const SCALED: bool = false;
const SECOND: bool = true;
//! end
//! param branch_offset: u32
//! param branch_stride: u32
//! param stream_offset: u32
//! param stream_stride: u32
//! param norm_branch: u32
//! param norm: u32
//! param scale: u32
//! param eps: f32
//! param eps_branch: f32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norms: array<vec4<f32>>; // tensors of the model, each at a multiple of 16 bytes
@group(0) @binding(1) var<storage, read> branch: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> stream: array<vec4<f32>>;

//! part sum
//! include matvec_sum
//! end

var<private> branch_factor: array<f32, N_X>;
var<private> norm_factor: array<f32, N_X>;

fn prologue_branch(n: u32, i: u32) -> vec4<f32> {
    return branch[(params.branch_offset + x_row(n) * params.branch_stride) / 4u + i];
}

fn prologue_h(n: u32, i: u32) -> vec4<f32> { // h'
    let h = x[(params.x_offset + x_row(n) * params.x_stride) / 4u + i];
    let sum = h + prologue_branch(n, i) * branch_factor[n] * norms[params.norm_branch / 4u + i];
    if (SCALED) {
        return sum * norms[params.scale / 4u].x;
    }
    return sum;
}

fn prologue_begin(local: u32) {
    for (var n = 0u; n < N_X; n++) {
        var sum = 0.0;
        for (var i = local; i < params.k / 4u; i += WG) {
            let b = prologue_branch(n, i);
            sum += dot(b, b);
        }
        branch_factor[n] = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps_branch);
        if (SECOND || group_number == 0u) {
            sum = 0.0;
            for (var i = local; i < params.k / 4u; i += WG) {
                let h = prologue_h(n, i);
                sum += dot(h, h);
                if (group_number == 0u && x_first + n < params.n_x) {
                    stream[(params.stream_offset + (x_first + n) * params.stream_stride) / 4u + i] = h;
                }
            }
        }
        if (SECOND) {
            norm_factor[n] = inverseSqrt(group_sum(sum, local) / f32(params.k) + params.eps);
        }
    }
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> {
    let h = prologue_h(n, i);
    if (SECOND) {
        return h * norm_factor[n] * norms[params.norm / 4u + i];
    }
    return h;
}
