// Epilogue of matvec with PER 2: gelu(gate) * up. out [n, rows] at out_stride.
//! param PART_out_offset: u32
//! param PART_out_stride: u32
@group(0) @binding(2) var<storage, read_write> PART_out: array<f32>;

//! include gelu_tanh

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    PART_out[params.PART_out_offset + n * params.PART_out_stride + row] = gelu_tanh(items.x) * items.y;
}

fn PART_finish(tile: u32, local: u32) {
}
