// Q6_K in matvec_batch: 4 * (q - 32), so that the low four bits and the high two, the upper one turned, fill a byte.
fn PART_decode(c: PART_chunk, chunk: u32, lane: u32, i: u32, half: u32) -> PART_Row {
    let low = (select(c.first, c.second, half != 0u) >> vec4<u32>(i * 2u)) << vec4<u32>(2u);
    let high = (c.high ^ vec4<u32>(0xaaaaaaaau)) << vec4<u32>(6u - 2u * half - 2u * i);
    var row: PART_Row;
    row.first = (low & vec4<u32>(0x3c3c3c3cu)) | (high & vec4<u32>(0xc0c0c0c0u));
    let scales = bitcast<i32>(select(c.scale.x, c.scale.y, i != 0u) << (24u - 16u * half - 8u * (lane & 1u))) >> 24u;
    row.scale = vec2<f32>(0.25 * c.d * f32(scales), 0.0);
    return row;
}

//! include matvec_batch_body
