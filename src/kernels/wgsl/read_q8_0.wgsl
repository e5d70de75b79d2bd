// Reader of Q8_0 rows (pack.c: quants i8[32] | d a block of 32). Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

struct PART_chunk { first: vec4<u32>, second: vec4<u32>, d: f32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    let q = (plane.x >> 2u) + c * 2u;
    return PART_chunk(weights[q], weights[q + 1u], PART_half(plane.y, c));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return select(c.first, c.second, i != 0u);
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    return vec2<f32>(c.d, 0.0);
}

//! include read_block
