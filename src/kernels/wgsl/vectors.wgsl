// Vectors that several dispatches would make, made in one and written down for the product after it: what a prologue of
// matvec describes (a branch taken in, a norm, pieces of attention joined), one workgroup a vector. Where the product has
// many vectors, its workgroups would each make them again.
// Part x is how they are kept: f32 here, int8 blocks with matvec_x_int8_subgroup or matvec_x_int8 and vectors_keep.
//! options
const WG: u32 = 256u; // invocations
//! end
const N_X: u32 = 1u;  // vectors of a workgroup

struct Params {
    n_x: u32,      // vectors
    k: u32,        // length of a vector, a multiple of 16
    x_stride: u32, // from vector to vector, elements
    x_offset: u32, // of the first
}
@group(1) @binding(0) var<uniform> params: Params;

var<private> x_first: u32;     // number of the vector
const group_number: u32 = 0u;  // of the workgroups that share it

fn x_row(n: u32) -> u32 {
    return x_first;
}

//! part x
//! options
const X_GROUPS: u32 = 64u; // of 16 elements: at least k / 16
//! end
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>; // [n_x, k]

const X_EACH: u32 = (X_GROUPS * 4u + WG - 1u) / WG;

fn x_own(e: u32, local: u32) -> u32 { // the e-th four that an invocation works at
    return e * WG + local;
}

//! part prologue
//! include matvec_prologue_plain
//! end

fn x_fill(local: u32) {
    prologue_begin(local);
    let n_four = params.k / 4u;
    for (var e = 0u; e < X_EACH; e++) {
        let i = x_own(e, local);
        if (i < n_four) {
            out[x_first * n_four + i] = prologue_own(0u, e, i);
        }
    }
}
//! end

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let n = id.x + id.y * n_group.x;
    if (n < params.n_x) {
        x_first = n;
        x_fill(local);
    }
}
