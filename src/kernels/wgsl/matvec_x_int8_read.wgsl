// Where a matvec_x_int8 part keeps vectors: in workgroup memory.
// The groups lie in four planes by their number mod 4: lanes that read groups 2, 4 or 8 apart at once find them in
// different banks, and what one lane reads of a chunk lies a constant apart.
const X_PLANE: u32 = X_GROUPS / 4u;
const X_SKEW: u32 = 8u; // what the planes leave free
var<workgroup> x_memory: array<vec4<u32>, (X_GROUPS + X_SKEW) * N_X>;
var<workgroup> x_scales: array<vec2<f32>, X_GROUPS / 2u * N_X>; // of a block: scale; sum of its quants, scaled

fn x_place(n: u32, four: u32, half: u32, second: u32) -> u32 {
    return n * (X_GROUPS + X_SKEW) + four + half * (X_PLANE + 1u) + second * (2u * X_PLANE + 4u);
}

fn x_keep(n: u32, group: u32, quants: vec4<u32>) { // 16 elements
    x_memory[x_place(n, group / 4u, group & 1u, (group >> 1u) & 1u)] = quants;
}

fn x_keep_block(n: u32, block: u32, numbers: vec2<u32>) { // of 32 elements: scale, sums
    x_scales[n * (X_GROUPS / 2u) + block] = dot_scaled(numbers);
}

fn x_quants(n: u32, four: u32, half: u32, second: u32) -> vec4<u32> {
    return x_memory[x_place(n, four, half, second)];
}

fn x_block(n: u32, block: u32) -> vec2<f32> {
    return x_scales[n * (X_GROUPS / 2u) + block];
}

fn x_pair(n: u32, four: u32) -> vec4<f32> {
    return vec4<f32>(x_block(n, four * 2u), x_block(n, four * 2u + 1u));
}

//! include matvec_dots
