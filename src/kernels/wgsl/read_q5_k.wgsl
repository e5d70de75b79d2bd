// Reader of Q5_K rows (pack.c: quants 128 bytes | d, dmin, scales 16 bytes | fifth bits 32 bytes a block of 256).
// Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 6u;
const PART_GROUPS: u32 = 4u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = true;

struct PART_chunk {
    first: vec4<u32>, second: vec4<u32>, head: vec4<u32>, high_first: vec4<u32>, high_second: vec4<u32>,
}

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 6u) + chunk;
    let q = (plane.x >> 2u) + c * 2u;
    let high = (plane.z >> 2u) + (c >> 2u) * 2u;
    return PART_chunk(weights[q], weights[q + 1u], weights[(plane.y >> 2u) + (c >> 2u)], weights[high], weights[high + 1u]);
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 4u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    let q = select(c.first, c.second, (i & 1u) != 0u);
    let high = select(c.high_first, c.high_second, (i & 1u) != 0u);
    let bit = (chunk & 3u) * 2u + (i >> 1u);
    return ((q >> vec4<u32>((i >> 1u) * 4u)) & vec4<u32>(0x0f0f0f0fu)) |
        (((high >> vec4<u32>(bit)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let j = (chunk & 3u) * 2u + (i >> 1u);
    let shift = (j & 3u) * 8u;
    let far = j >= 4u; // their upper two bits lie apart from the others
    let upper = shift + select(0u, 2u, far);
    let mask = select(63u, 48u, far);
    let rest = select(0u, 15u, far);
    let scale = ((c.head.y >> upper) & mask) | ((c.head.w >> shift) & rest);
    let least = ((c.head.z >> upper) & mask) | ((c.head.w >> (shift + 4u)) & rest);
    return unpack2x16float(c.head.x) * vec2<f32>(f32(scale), f32(least));
}

//! include read_block
