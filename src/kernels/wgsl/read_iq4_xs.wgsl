// Reader of IQ4_XS rows (pack.c: indices 128 bytes | d, scales 8 bytes a block of 256). Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

// 16 values i8, four a word; a nibble is their index.
const PART_TABLE = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);

struct PART_chunk { q: vec4<u32>, d: u32, low: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    return PART_chunk(weights[(plane.x >> 2u) + c], PART_word(plane.y + (c >> 3u) * 2u), PART_word(plane.y + (c >> 3u) * 2u + 1u));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return PART_look(c.q >> vec4<u32>(i * 4u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let b = chunk & 7u;
    let scale = ((c.low >> (b * 4u)) & 15u) | (((c.d >> (16u + b * 2u)) & 3u) << 4u);
    return vec2<f32>(unpack2x16float(c.d).x * f32(i32(scale) - 32), 0.0);
}

//! include read_table
