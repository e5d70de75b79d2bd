// Epilogue of matvec: gelu of the result times a factor of its own. factor, out [n, rows] at their strides.
//! param PART_out_offset: u32
//! param PART_out_stride: u32
//! param factor_offset: u32
//! param factor_stride: u32
@group(0) @binding(2) var<storage, read> factor: array<f32>;
@group(0) @binding(2) var<storage, read_write> PART_out: array<f32>;

//! include gelu_tanh

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    let f = factor[params.factor_offset + n * params.factor_stride + row];
    PART_out[params.PART_out_offset + n * params.PART_out_stride + row] = gelu_tanh(items.x) * f;
}

fn PART_finish(tile: u32, local: u32) {
}
