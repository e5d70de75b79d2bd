// Part `matrix` of matvec for experts that are chosen here, by every workgroup anew, from a vector's logits [n, n_expert]:
// result n is a pair of a vector and the expert in one of its n_used places, whose matrix has matrix_rows rows. The first
// workgroup of a pair stores its ids and gates [n, n_used], which nobody reads here. N_X is 1, and no matrix is cut.
//! param matrix_rows: u32
//! param n_used: u32
//! param n_expert: u32
//! param logits_offset: u32
//! param logits_stride: u32
//! param scales_offset: u32
//! param ids_offset: u32
//! param ids_stride: u32
//! param gates_offset: u32
//! param gates_stride: u32
//! param factor: f32
@group(0) @binding(3) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
@group(0) @binding(3) var<storage, read_write> gates: array<f32>;

//! include experts_choose

var<private> matrix_first: u32;

fn matrix_begin(local: u32) {
    let n = x_first / params.n_used;
    let place = x_first % params.n_used;
    choose(params.logits_offset + n * params.logits_stride, params.n_expert, params.n_used, params.factor, local);
    matrix_first = chosen[place] * params.matrix_rows;
    if (group_number == 0u && local == 0u) {
        ids[params.ids_offset + n * params.ids_stride + place] = i32(chosen[place]);
        gates[params.gates_offset + n * params.gates_stride + place] = chosen_gate(place, params.n_used, params.scales_offset);
    }
}

fn matrix_vector(n: u32) -> u32 {
    return n / params.n_used;
}

fn matrix_holds(row: u32) -> bool {
    return true;
}

fn matrix_row(row: u32, chunk: u32) -> u32 {
    return matrix_first + row;
}

fn matrix_chunk(chunk: u32) -> u32 {
    return chunk;
}

fn matrix_chunks(stretch: u32) -> u32 {
    return stretch;
}
