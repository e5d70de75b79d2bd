// Rounding of 32 values to int8: quants = v * 127 / max |v|, nearest, and what a dot product needs beside them.
struct Block {
    first: vec4<u32>,  // 16 quants
    second: vec4<u32>,
    scale: f32,
    sums: vec2<i32>,   // of the quants of each half
}

fn block_largest(v: mat4x4<f32>) -> f32 {
    let m = max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3])));
    return max(max(m.x, m.y), max(m.z, m.w));
}

fn block_quants(v: mat4x4<f32>, factor: f32) -> vec4<u32> {
    return vec4<u32>(pack4xI8(vec4<i32>(round(v[0] * factor))), pack4xI8(vec4<i32>(round(v[1] * factor))),
        pack4xI8(vec4<i32>(round(v[2] * factor))), pack4xI8(vec4<i32>(round(v[3] * factor))));
}

fn block_sum(q: vec4<u32>) -> i32 {
    let one = 0x01010101u;
    return dot4I8Packed(q.x, one) + dot4I8Packed(q.y, one) + dot4I8Packed(q.z, one) + dot4I8Packed(q.w, one);
}

fn block_of(a: mat4x4<f32>, b: mat4x4<f32>) -> Block {
    let largest = max(block_largest(a), block_largest(b));
    let factor = select(0.0, 127.0 / largest, largest > 1e-30); // smaller ones would overflow
    let first = block_quants(a, factor);
    let second = block_quants(b, factor);
    return Block(first, second, largest / 127.0, vec2<i32>(block_sum(first), block_sum(second)));
}

fn block_sums(block: Block) -> u32 { // as two i16
    return bitcast<u32>((block.sums.x & 0xffff) | (block.sums.y << 16u));
}
