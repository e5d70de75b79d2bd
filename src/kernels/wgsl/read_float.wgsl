// What the readers of plain values share: nothing but values is of use.
fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return vec4<u32>(0u);
}

fn PART_floats(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    return PART_values(c, chunk, i);
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    return vec2<f32>(1.0, 0.0);
}
