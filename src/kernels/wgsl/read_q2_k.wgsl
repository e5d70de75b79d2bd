// Reader of Q2_K rows (pack.c: quants 64 bytes | scales and leasts u4, 16 bytes | d, dmin a block of 256).
// A chunk is the 64 elements that share 16 bytes of quants: 4 groups, 32 elements apart. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 6u;
const PART_GROUPS: u32 = 4u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = false;
const PART_APART: bool = true;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = true;

struct PART_chunk { q: vec4<u32>, scale: vec2<u32>, d: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 6u) + chunk;
    let s = plane.y + (c >> 1u) * 2u;
    return PART_chunk(weights[(plane.x >> 2u) + c], vec2<u32>(PART_word(s), PART_word(s + 1u)), PART_word(plane.z + (c >> 2u)));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return (chunk >> 1u) * 8u + i * 2u + (chunk & 1u);
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return (c.q >> vec4<u32>(i * 2u)) & vec4<u32>(0x03030303u);
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let byte = select(c.scale.x, c.scale.y, i >= 2u) >> ((i & 1u) * 16u + (chunk & 1u) * 8u);
    return unpack2x16float(c.d) * vec2<f32>(f32(byte & 15u), f32((byte >> 4u) & 15u));
}

//! include read_block
