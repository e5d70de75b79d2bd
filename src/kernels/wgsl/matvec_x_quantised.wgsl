// Vectors that an earlier dispatch rounded to int8 (quantise.wgsl, or a fused epilogue):
// x: quants i8 [n_x, k] | scale f32 and two sums i16 [n_x, k / 32]. x_stride and x_offset are not used.
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;

fn x_fill(local: u32) {
}

fn x_quants(n: u32, four: u32, half: u32, second: u32) -> vec4<u32> {
    return x[x_row(n) * (params.k / 16u) + four * 4u + second * 2u + half];
}

fn x_block(n: u32, block: u32) -> vec2<f32> {
    let i = x_row(n) * (params.k / 32u) + block;
    let two = x[params.n_x * (params.k / 16u) + (i >> 1u)];
    return dot_scaled(select(two.xy, two.zw, (i & 1u) != 0u));
}

fn x_pair(n: u32, four: u32) -> vec4<f32> {
    let two = x[params.n_x * (params.k / 16u) + x_row(n) * (params.k / 64u) + four];
    return vec4<f32>(dot_scaled(two.xy), dot_scaled(two.zw));
}

//! include matvec_dots
