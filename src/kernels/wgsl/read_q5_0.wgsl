// Reader of Q5_0 rows (pack.c: quants 16 bytes | d | fifth bits 4 bytes a block of 32). Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 16;
const PART_LEAST: bool = false;

// Bits 0 to 15 as bit 4 of 16 bytes: the product puts copies of 4 bits where bits 0, 8, 16 and 24 are the wanted ones.
fn PART_fifth(bits: u32) -> vec4<u32> {
    let four = (vec4<u32>(bits) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    return ((four * 0x00204081u) & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
}

struct PART_chunk { q: vec4<u32>, d: f32, high: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    return PART_chunk(weights[(plane.x >> 2u) + c], PART_half(plane.y, c), PART_word(plane.z + c));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    let q = (c.q >> vec4<u32>(i * 4u)) & vec4<u32>(0x0f0f0f0fu);
    return q | PART_fifth(c.high >> (i * 16u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    return vec2<f32>(c.d, 0.0);
}

//! include read_block
