// What the readers of types share whose quants are all the lower or all the upper four bits of 16 bytes: as read_block, but
// floats are made of the nibbles where they lie. Such a reader has PART_bytes: the 16 bytes that group i is in.
//! include read_values

// Nibbles 0, 2, 4 and 6 of a word, or those above them, less ZERO, as floats.
fn PART_four(word: u32, above: bool) -> vec4<f32> {
    let half = word >> 16u;
    let even = PART_known(select(0x4b000000u, 0x49000000u, above)); // 2^23, or 2^19 for nibbles that lie four bits higher
    let odd = PART_known(select(0x47000000u, 0x45000000u, above));  // 2^15 or 2^11: eight bits higher
    let low = select(0x0fu, 0xf0u, above);
    let high = select(0x0f00u, 0xf000u, above);
    let bits = vec4<u32>((word & low) ^ even, (word & high) ^ odd, (half & low) ^ even, (half & high) ^ odd);
    let less = select(vec2<f32>(8388608.0, 32768.0), vec2<f32>(524288.0, 2048.0), above) + vec2<f32>(f32(PART_ZERO));
    return bitcast<vec4<f32>>(bits) - less.xyxy;
}

fn PART_floats(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    let q = PART_bytes(c, i);
    let above = PART_above(i);
    return mat4x4<f32>(PART_four(q.x, above), PART_four(q.y, above), PART_four(q.z, above), PART_four(q.w, above));
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return (PART_bytes(c, i) >> vec4<u32>(select(0u, 4u, PART_above(i)))) & vec4<u32>(0x0f0f0f0fu);
}
