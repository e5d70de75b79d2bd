// Part `matrix` of matvec for experts: result n is a pair of a vector and an expert, whose matrix has matrix_rows rows and
// may lie partly or wholly in another shard.
//! param matrix_rows: u32
//! param share: u32
//! param n_used: u32
//! param n_expert: u32
//! param ids_offset: u32
//! param ids_stride: u32
//! param stored: u32
@group(0) @binding(3) var<storage, read> ids: array<i32>; // [n, n_used], rows at ids_stride

var<private> matrix_first: u32;

fn matrix_begin(local: u32) {
    let id = ids[params.ids_offset + x_first / params.n_used * params.ids_stride + x_first % params.n_used];
    matrix_first = select(0u, u32(id), id >= 0 && u32(id) < params.n_expert) * params.matrix_rows;
}

fn matrix_vector(n: u32) -> u32 { // `share` experts meet the same vector
    return n / params.share;
}

fn matrix_holds(row: u32) -> bool { // wraps where the matrix begins before the shard
    return matrix_first + row < params.stored;
}

fn matrix_row(row: u32, chunk: u32) -> u32 {
    return select(0u, matrix_first + row, matrix_holds(row));
}

fn matrix_chunk(chunk: u32) -> u32 {
    return chunk;
}

fn matrix_chunks(stretch: u32) -> u32 {
    return stretch;
}
