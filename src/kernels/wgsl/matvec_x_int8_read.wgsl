// Where a matvec_x_int8 part keeps vectors: in workgroup memory.
var<workgroup> x_memory: array<vec4<u32>, X_GROUPS * N_X>;
var<workgroup> x_scales: array<vec2<u32>, X_GROUPS / 2u * N_X>; // scale as bits; sums as two i16

// Lanes read groups that are 2 or 4 apart at once: turned within fours, so that these lie in different banks.
fn x_place(n: u32, group: u32) -> u32 {
    return n * X_GROUPS + (group ^ ((group >> 3u) & 3u));
}

fn x_keep(n: u32, group: u32, quants: vec4<u32>) { // 16 elements
    x_memory[x_place(n, group)] = quants;
}

fn x_keep_block(n: u32, block: u32, numbers: vec2<u32>) { // of 32 elements: scale, sums
    x_scales[n * (X_GROUPS / 2u) + block] = numbers;
}

fn x_quants(n: u32, group: u32) -> vec4<u32> {
    return x_memory[x_place(n, group)];
}

fn x_block(n: u32, block: u32) -> vec3<f32> { // scale, sums of both halves
    let s = x_scales[n * (X_GROUPS / 2u) + block];
    let sums = bitcast<i32>(s.y);
    return vec3<f32>(bitcast<f32>(s.x), f32((sums << 16u) >> 16u), f32(sums >> 16u));
}
