// Epilogue of matmul_tile and matmul_dot where k is divided: sums of part `part_of_k`, for matmul_merge.
//! param PART_out_part: u32
@group(0) @binding(2) var<storage, read_write> PART_out: array<f32>; // [parts, n, rows], out_part elements a part

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    PART_out[part_of_k * params.PART_out_part + n * params.PART_rows + row] = items.x;
}
