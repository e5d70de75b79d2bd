// Rounds vectors to int8 in blocks of 32, one invocation a block, for matvec_x_quantised.
//! options
const WG: u32 = 64u;
//! end
struct Params {
    n_x: u32,      // vectors
    k: u32,        // length of a vector, a multiple of 32
    x_stride: u32, // from vector to vector, elements
    x_offset: u32, // of the first
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;                    // [n_x, k] at x_stride
@group(0) @binding(1) var<storage, read_write> quantised: array<vec4<u32>>; // i8 [n_x, k] | scale f32, sums i16[2] [n_x, k / 32]

//! include matvec_quants

fn four(at: u32) -> vec4<f32> {
    return vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
}

fn sixteen(at: u32) -> mat4x4<f32> {
    return mat4x4<f32>(four(at), four(at + 4u), four(at + 8u), four(at + 12u));
}

// Two blocks an invocation, since their scales share 16 bytes.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let n_block = params.n_x * (params.k / 32u);
    let i = (id.x + id.y * n_group.x) * WG + local;
    if (i * 2u >= n_block) {
        return;
    }
    var scales = vec4<u32>(0u);
    for (var j = 0u; j < 2u; j++) {
        let b = i * 2u + j;
        if (b < n_block) {
            let at = params.x_offset + (b / (params.k / 32u)) * params.x_stride + (b % (params.k / 32u)) * 32u;
            let block = block_of(sixteen(at), sixteen(at + 16u));
            quantised[b * 2u] = block.first;
            quantised[b * 2u + 1u] = block.second;
            let s = vec2<u32>(bitcast<u32>(block.scale), block_sums(block));
            scales = select(vec4<u32>(scales.xy, s), vec4<u32>(s, 0u, 0u), j == 0u);
        }
    }
    quantised[n_block * 2u + i] = scales;
}
