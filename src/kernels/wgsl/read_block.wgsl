// What the readers of block types share; see read_q4_k for the interface. Included by them, under their prefix.
//
// value = scale * (q - ZERO) - least

fn PART_word(i: u32) -> u32 {
    return weights[i >> 2u][i & 3u];
}

fn PART_half(plane: u32, i: u32) -> f32 {
    return unpack2x16float(PART_word(plane + (i >> 1u)))[i & 1u];
}

// The 16 values of group i, in order.
fn PART_values(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    let q = PART_quants(c, chunk, i);
    let s = PART_scale(c, chunk, i);
    let zero = vec4<f32>(f32(PART_ZERO));
    let least = vec4<f32>(s.y);
    return mat4x4<f32>(
        s.x * (vec4<f32>(unpack4xI8(q.x)) - zero) - least,
        s.x * (vec4<f32>(unpack4xI8(q.y)) - zero) - least,
        s.x * (vec4<f32>(unpack4xI8(q.z)) - zero) - least,
        s.x * (vec4<f32>(unpack4xI8(q.w)) - zero) - least);
}
