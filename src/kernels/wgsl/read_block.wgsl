// What the readers of block types share; see read_q4_k for the interface. Included by them, under their prefix.
//! include read_values

// The four i8 of a word less ZERO, as floats.
fn PART_four(word: u32) -> vec4<f32> {
    let upper = word >> 16u;
    let even = PART_known(0x4b000080u); // 2^23 and 2^15, the byte's sign turned
    let odd = PART_known(0x47008000u);
    let bits = vec4<u32>((word & 0xffu) ^ even, (word & 0xff00u) ^ odd, (upper & 0xffu) ^ even, (upper & 0xff00u) ^ odd);
    let less = vec2<f32>(8388736.0, 32896.0) + vec2<f32>(f32(PART_ZERO));
    return bitcast<vec4<f32>>(bits) - less.xyxy;
}

fn PART_floats(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    let q = PART_quants(c, chunk, i);
    return mat4x4<f32>(PART_four(q.x), PART_four(q.y), PART_four(q.z), PART_four(q.w));
}
