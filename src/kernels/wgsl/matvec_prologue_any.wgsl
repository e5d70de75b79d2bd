// Vectors of any length and place, element by element; beyond the end are zeros.
@group(0) @binding(1) var<storage, read> x: array<f32>; // [n_x, k] at x_stride

fn prologue_begin(local: u32) {
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3
    let at = params.x_offset + x_row(n) * params.x_stride;
    let last = params.k - 1u;
    let e = vec4<u32>(i * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let v = vec4<f32>(x[at + min(e.x, last)], x[at + min(e.y, last)], x[at + min(e.z, last)], x[at + min(e.w, last)]);
    return select(vec4<f32>(0.0), v, e <= vec4<u32>(last));
}

fn prologue_own(n: u32, e: u32, i: u32) -> vec4<f32> { // four i = x_own(e, local) of vector n
    return prologue_at(n, i);
}
