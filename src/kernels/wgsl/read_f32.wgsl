// Reader of F32 rows, K a multiple of 16. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 4u;
const PART_GROUPS: u32 = 1u;
const PART_FLOAT: bool = true;
const PART_PAIRED: bool = false;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

struct PART_chunk { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let at = (plane.x >> 2u) + row * (params.PART_k >> 2u) + chunk * 4u;
    return PART_chunk(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
}

fn PART_values(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    return mat4x4<f32>(bitcast<vec4<f32>>(c.a), bitcast<vec4<f32>>(c.b), bitcast<vec4<f32>>(c.c), bitcast<vec4<f32>>(c.d));
}

//! include read_float
