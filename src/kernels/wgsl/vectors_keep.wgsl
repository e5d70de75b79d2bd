// Where vectors.wgsl puts vectors rounded to int8: as quantise.wgsl does, for matvec_x_quantised and the tiled kernel.
@group(0) @binding(2) var<storage, read_write> out: array<vec2<u32>>; // i8 [n_x, k] | scale f32, sums i16[2] [n_x, k / 32]

fn x_keep(n: u32, group: u32, quants: vec4<u32>) {
    let i = (x_first * (params.k / 16u) + group) * 2u;
    out[i] = quants.xy;
    out[i + 1u] = quants.zw;
}

fn x_keep_block(n: u32, block: u32, numbers: vec2<u32>) { // scale, sums
    out[params.n_x * (params.k / 8u) + x_first * (params.k / 32u) + block] = numbers;
}
