// Reader of Q6_K rows (pack.c: low 4 bits 128 bytes | high 2 bits 64 bytes | scales i8[16] | d a block of 256).
// A chunk is the 64 elements that share 16 bytes of high bits: 4 groups, 32 elements apart. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 6u;
const PART_GROUPS: u32 = 4u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = false;
const PART_APART: bool = true;
const PART_ZERO: i32 = 32;
const PART_LEAST: bool = false;

struct PART_chunk { first: vec4<u32>, second: vec4<u32>, high: vec4<u32>, scale: vec2<u32>, d: f32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 6u) + chunk;
    let block = c >> 2u;
    let run = c >> 1u; // of 128 elements
    let q = (plane.x >> 2u) + run * 4u + (c & 1u);
    let s = plane.z + run * 2u;
    return PART_chunk(weights[q], weights[q + 2u], weights[(plane.y >> 2u) + c],
        vec2<u32>(PART_word(s), PART_word(s + 1u)), PART_half(plane.w, block));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return (chunk >> 1u) * 8u + i * 2u + (chunk & 1u);
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    let low = select(c.first, c.second, (i & 1u) != 0u) >> vec4<u32>((i >> 1u) * 4u);
    let high = c.high >> vec4<u32>(i * 2u);
    return (low & vec4<u32>(0x0f0f0f0fu)) | ((high & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let word = bitcast<i32>(select(c.scale.x, c.scale.y, i >= 2u));
    return vec2<f32>(c.d * f32(extractBits(word, (i & 1u) * 16u + (chunk & 1u) * 8u, 8u)), 0.0);
}

//! include read_block
