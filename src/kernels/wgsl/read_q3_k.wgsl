// Reader of Q3_K rows (pack.c: low 2 bits 64 bytes | high bits 32 bytes | scales u6[16] in 12 bytes | d a block of 256).
// A chunk is the 64 elements that share 16 bytes of low bits: 4 groups, 32 elements apart. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 6u;
const PART_GROUPS: u32 = 4u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = false;
const PART_APART: bool = true;
const PART_ZERO: i32 = 4;
const PART_LEAST: bool = false;

struct PART_chunk { low: vec4<u32>, high: vec4<u32>, scale: vec3<u32>, d: f32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 6u) + chunk;
    let block = c >> 2u;
    let s = plane.z + block * 3u;
    return PART_chunk(weights[(plane.x >> 2u) + c], weights[(plane.y >> 2u) + block * 2u + (c & 1u)],
        vec3<u32>(PART_word(s), PART_word(s + 1u), PART_word(s + 2u)), PART_half(plane.w, block));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return (chunk >> 1u) * 8u + i * 2u + (chunk & 1u);
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    let low = (c.low >> vec4<u32>(i * 2u)) & vec4<u32>(0x03030303u);
    let high = (c.high >> vec4<u32>(((chunk >> 1u) & 1u) * 4u + i)) & vec4<u32>(0x01010101u);
    return low | (high << vec4<u32>(2u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let half = (chunk >> 1u) & 1u;
    let byte = ((i & 1u) * 2u + (chunk & 1u)) * 8u;
    let low = (select(c.scale.x, c.scale.y, i >= 2u) >> (byte + half * 4u)) & 15u;
    let high = (c.scale.z >> (byte + half * 4u + (i >> 1u) * 2u)) & 3u;
    return vec2<f32>(c.d * f32(i32(low | (high << 4u)) - 32), 0.0);
}

//! include read_block
