// Part `matrix` of matvec for a sum over experts: the matrices of a vector's experts stand side by side and make one with
// rows of n_used stretches, `stretch` chunks each. N_X is 1: every vector has other experts.
//! param stretch: u32
//! param n_used: u32
//! param n_expert: u32
//! param ids_offset: u32
//! param ids_stride: u32
@group(0) @binding(3) var<storage, read> ids: array<i32>; // [n, n_used], rows at ids_stride

fn matrix_begin(local: u32) {
}

fn matrix_vector(n: u32) -> u32 {
    return n;
}

fn matrix_row(row: u32, chunk: u32) -> u32 {
    let id = ids[params.ids_offset + x_first * params.ids_stride + chunk / params.stretch];
    return select(0u, u32(id), id >= 0 && u32(id) < params.n_expert) * params.PART_rows + row;
}

fn matrix_chunk(chunk: u32) -> u32 {
    return chunk % params.stretch;
}

fn matrix_chunks(stretch: u32) -> u32 {
    return stretch * params.n_used;
}

fn matrix_holds(row: u32) -> bool {
    return true;
}
