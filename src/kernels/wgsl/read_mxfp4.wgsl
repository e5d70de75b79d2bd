// Reader of MXFP4 rows (pack.c: indices 16 bytes | exponent u8 a block of 32): doubled values, so the scale is 2^(e - 128). Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

// 16 values i8, four a word; a nibble is their index.
const PART_TABLE = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);

struct PART_chunk { q: vec4<u32>, e: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    return PART_chunk(weights[(plane.x >> 2u) + c], PART_word(plane.y + (c >> 2u)) >> ((c & 3u) * 8u));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    return PART_look(c.q >> vec4<u32>(i * 4u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let e = c.e & 255u; // 0 and 1: subnormal
    return vec2<f32>(bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u)), 0.0);
}

//! include read_table
