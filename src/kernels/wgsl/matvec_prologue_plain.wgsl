// Vectors as they lie in memory, read 16 bytes at a time: k a multiple of 16; x_offset, x_stride multiples of 4.
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [n_x, k], rows at x_stride, k a multiple of 4

fn prologue_begin(local: u32) {
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3
    return x[(params.x_offset + x_row(n) * params.x_stride) / 4u + i];
}

fn prologue_own(n: u32, e: u32, i: u32) -> vec4<f32> { // four i = x_own(e, local) of vector n
    return prologue_at(n, i);
}
