// What readers of block types share: loads of words, and values from floats: scale * (q - ZERO) - least.
fn PART_word(i: u32) -> u32 {
    return weights[i >> 2u][i & 3u];
}

fn PART_half(plane: u32, i: u32) -> f32 {
    return unpack2x16float(PART_word(plane + (i >> 1u)))[i & 1u];
}

// The value, out of the compiler's sight (PART_k is below 2^31): an operation with two constants becomes two operations on
// NVIDIA, one with a constant and a register does not.
fn PART_known(value: u32) -> u32 {
    return value | (params.PART_k >> 31u);
}

// The 16 values of group i, in order.
fn PART_values(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    let q = PART_floats(c, chunk, i);
    let s = PART_scale(c, chunk, i);
    let least = vec4<f32>(s.y);
    return mat4x4<f32>(s.x * q[0] - least, s.x * q[1] - least, s.x * q[2] - least, s.x * q[3] - least);
}
