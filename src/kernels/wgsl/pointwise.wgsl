// pointwise - out[i] = OP(a[i], b[i]) over up to four dimensions, every tensor with strides of its own.
//   a [d0, d1, d2, d3] f32; b the same with stride 0 where it is broadcast; out [d0, d1, d2, d3], strides of the bounds
// One thread makes one ELEMENT: four neighbours along d3 where all strides allow it, else one. Sizes are of this run,
// strides of the bounds, both in ELEMENTs (b in B_ELEMENTs). RANK leaves out the divisions of dimensions that are 1.
//! options
alias ELEMENT = f32;
alias B_ELEMENT = f32;  // f32 beside a vec4 ELEMENT: b is broadcast along d3
const OP: u32 = 0u;     // 0 copy, 1 add, 2 mul, 3 scale, 4 gelu_tanh, 5 geglu, 6 softcap
const RANK: u32 = 4u;
//! end

struct Params {
    d0: u32, d1: u32, d2: u32, d3: u32,
    a_offset: u32, a0: u32, a1: u32, a2: u32, a3: u32,
    b_offset: u32, b0: u32, b1: u32, b2: u32, b3: u32,
    o0: u32, o1: u32, o2: u32, o3: u32,
    constant: f32,
}
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> a: array<ELEMENT>;
@group(0) @binding(1) var<storage, read> b: array<B_ELEMENT>;
@group(0) @binding(2) var<storage, read_write> out: array<ELEMENT>;

// x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 * x^3), as x * sigmoid(2u): nothing overflows.
fn gelu(x: ELEMENT) -> ELEMENT {
    let u = ELEMENT(1.5957691216) * (x + ELEMENT(0.044715) * x * x * x);
    return x / (ELEMENT(1.0) + exp(min(-u, ELEMENT(80.0))));
}

// The built-in overflows on some devices and is coarse near 0 on others.
fn tanh_safe(x: ELEMENT) -> ELEMENT {
    let t = exp(ELEMENT(-2.0) * min(abs(x), ELEMENT(20.0)));
    let large = sign(x) * (ELEMENT(1.0) - t) / (ELEMENT(1.0) + t);
    let s = x * x;
    let small = x * (ELEMENT(1.0) - s * (ELEMENT(1.0 / 3.0) - s * (ELEMENT(2.0 / 15.0) - s * ELEMENT(17.0 / 315.0))));
    return select(large, small, abs(x) < ELEMENT(0.25));
}

fn apply(x: ELEMENT, y: ELEMENT) -> ELEMENT {
    switch (OP) {
        case 1u: { return x + y; }
        case 2u: { return x * y; }
        case 3u: { return x * params.constant; }
        case 4u: { return gelu(x); }
        case 5u: { return gelu(x) * y; }
        case 6u: { return ELEMENT(params.constant) * tanh_safe(x / params.constant); }
        default: { return x; }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.x + group.y * groups.x) * 256u + lane;
    var at = vec4<u32>(0u, 0u, 0u, index);
    if (RANK > 1u) {
        at.w = index % params.d3;
        at.z = index / params.d3;
    }
    if (RANK > 2u) {
        at.y = at.z / params.d2;
        at.z = at.z % params.d2;
    }
    if (RANK > 3u) {
        at.x = at.y / params.d1;
        at.y = at.y % params.d1;
    }
    if (any(at >= vec4<u32>(params.d0, params.d1, params.d2, params.d3))) {
        return;
    }
    let from_a = params.a_offset + at.x * params.a0 + at.y * params.a1 + at.z * params.a2 + at.w * params.a3;
    let from_b = params.b_offset + at.x * params.b0 + at.y * params.b1 + at.z * params.b2 + at.w * params.b3;
    let to = at.x * params.o0 + at.y * params.o1 + at.z * params.o2 + at.w * params.o3;
    out[to] = apply(a[from_a], ELEMENT(b[from_b]));
}
