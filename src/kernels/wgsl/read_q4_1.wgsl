// Reader of Q4_1 rows (pack.c: quants 16 bytes | d, m a block of 32). Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = true;

struct PART_chunk { q: vec4<u32>, d: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    return PART_chunk(weights[(plane.x >> 2u) + c], PART_word(plane.y + c));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_bytes(c: PART_chunk, i: u32) -> vec4<u32> {
    return c.q;
}

fn PART_above(i: u32) -> bool {
    return i != 0u;
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    return unpack2x16float(c.d) * vec2<f32>(1.0, -1.0);
}

//! include read_nibbles
