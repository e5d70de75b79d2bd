// Vectors of stretches, each times a number of its own: x [n_x, k], gates [n_x, k / gated]; k and gated multiples of 16.
//! param gated: u32
//! param gates_offset: u32
//! param gates_stride: u32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;

fn prologue_begin(local: u32) {
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3, all of one stretch
    let gate = gates[params.gates_offset + x_row(n) * params.gates_stride + i * 4u / params.gated];
    return gate * x[(params.x_offset + x_row(n) * params.x_stride) / 4u + i];
}

fn prologue_own(n: u32, e: u32, i: u32) -> vec4<f32> { // four i = x_own(e, local) of vector n
    return prologue_at(n, i);
}
