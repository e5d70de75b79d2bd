// Epilogue of matvec: cap * tanh(result / cap). out [n, rows] at out_stride.
//! param PART_out_offset: u32
//! param PART_out_stride: u32
//! param cap: f32
@group(0) @binding(2) var<storage, read_write> PART_out: array<f32>;

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    PART_out[params.PART_out_offset + n * params.PART_out_stride + row] = params.cap * tanh(clamp(items.x / params.cap, -10.0, 10.0));
}

fn PART_finish(tile: u32, local: u32) {
}
