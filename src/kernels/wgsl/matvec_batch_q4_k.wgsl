// Q4_K in matvec_batch. Upper nibbles stay where they are, their highest bit turned: 16 * (q - 8), one operation a word.
fn PART_decode(c: PART_chunk, chunk: u32, lane: u32, i: u32, half: u32) -> PART_Row {
    let upper = i != 0u;
    let mask = vec4<u32>(select(0x0f0f0f0fu, 0xf0f0f0f0u, upper));
    let turn = vec4<u32>(select(0u, 0x80808080u, upper));
    // Scale and least of blocks 0 to 3 lie in bytes, of the others the upper two bits apart.
    let far = (lane & 2u) != 0u;
    let shift = (lane & 1u) * 16u + i * 4u;
    let six = select(0x3fu, 0x30u, far);
    let four = select(0u, 0x0fu, far);
    let scale = ((c.head.y >> (shift + (lane & 2u))) & six) | ((c.head.w >> shift) & four);
    let least = ((c.head.z >> (shift + (lane & 2u))) & six) | ((c.head.w >> (shift + 4u)) & four);
    let s = unpack2x16float(c.head.x) * vec2<f32>(f32(scale), f32(least));
    return PART_Row((c.first & mask) ^ turn, (c.second & mask) ^ turn,
        vec2<f32>(s.x * select(1.0, 0.0625, upper), s.y - s.x * select(0.0, 8.0, upper)));
}

//! include matvec_batch_body
