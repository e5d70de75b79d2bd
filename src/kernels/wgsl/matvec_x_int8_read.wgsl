// What reads the vectors that a matvec_x_int8 part laid into workgroup memory.
// Lanes read groups that are 2 or 4 apart at once: turned within fours, so that these lie in different banks.
fn x_place(n: u32, group: u32) -> u32 {
    return n * X_GROUPS + (group ^ ((group >> 3u) & 3u));
}

fn x_quants(n: u32, group: u32) -> vec4<u32> {
    return x_memory[x_place(n, group)];
}

fn x_block(n: u32, block: u32) -> vec3<f32> { // scale, sums of both halves
    let s = x_scales[n * (X_GROUPS / 2u) + block];
    let sums = bitcast<i32>(s.y);
    return vec3<f32>(bitcast<f32>(s.x), f32((sums << 16u) >> 16u), f32(sums >> 16u));
}
