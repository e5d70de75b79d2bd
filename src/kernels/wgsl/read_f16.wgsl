// Reader of F16 rows, K a multiple of 16. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 4u;
const PART_GROUPS: u32 = 1u;
const PART_FLOAT: bool = true;
const PART_PAIRED: bool = false;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

struct PART_chunk { a: vec4<u32>, b: vec4<u32> }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let at = (plane.x >> 2u) + row * (params.PART_k >> 3u) + chunk * 2u;
    return PART_chunk(weights[at], weights[at + 1u]);
}

fn PART_four(x: u32, y: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(x), unpack2x16float(y));
}

fn PART_values(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    return mat4x4<f32>(PART_four(c.a.x, c.a.y), PART_four(c.a.z, c.a.w), PART_four(c.b.x, c.b.y), PART_four(c.b.z, c.b.w));
}

//! include read_float
