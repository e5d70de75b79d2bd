// Vectors that an earlier dispatch rounded to int8 (quantise.wgsl, or a fused epilogue):
// x: quants i8 [n_x, k] | scale f32 and two sums i16 [n_x, k / 32]. x_stride and x_offset are not used.
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;

fn x_fill(local: u32) {
}

fn x_quants(n: u32, group: u32) -> vec4<u32> {
    return x[x_row(n) * (params.k / 16u) + group];
}

fn x_block(n: u32, block: u32) -> vec3<f32> { // scale, sums of both halves
    let i = x_row(n) * (params.k / 32u) + block;
    let four = x[params.n_x * (params.k / 16u) + (i >> 1u)];
    let s = select(four.xy, four.zw, (i & 1u) != 0u);
    let sums = bitcast<i32>(s.y);
    return vec3<f32>(bitcast<f32>(s.x), f32((sums << 16u) >> 16u), f32(sums >> 16u));
}
