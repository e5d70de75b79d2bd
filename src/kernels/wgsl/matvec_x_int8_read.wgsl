// What reads the vectors that a matvec_x_int8 part laid into workgroup memory.
fn x_quants(n: u32, group: u32) -> vec4<u32> {
    return x_memory[n * X_GROUPS + group];
}

fn x_block(n: u32, block: u32) -> vec3<f32> { // scale, sums of both halves
    let s = x_scales[n * (X_GROUPS / 2u) + block];
    let sums = bitcast<i32>(s.y);
    return vec3<f32>(bitcast<f32>(s.x), f32((sums << 16u) >> 16u), f32(sums >> 16u));
}
