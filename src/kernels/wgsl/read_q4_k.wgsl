// Reader of Q4_K rows (pack.c: quants 128 bytes | d, dmin, scales 16 bytes a block of 256).
//
// Every reader has this interface; elements are counted within the row, in groups of 16, some groups a chunk:
//   PART_SHIFT   log2 of the elements of a chunk;   PART_GROUPS  groups of a chunk
//   PART_FLOAT   plain values: PART_values alone is of use
//   PART_PAIRED  groups 2j and 2j + 1 of a chunk follow one another and have one scale
//   PART_APART   groups of a chunk lie 32 elements apart; else they follow one another
//   PART_ZERO, PART_LEAST   value = scale * (q - ZERO) - least; LEAST false: least is 0
//   PART_load    the words of a chunk, all loads and no arithmetic; plane: where the planes begin, in 4-byte words
//   PART_group   number of the chunk's i-th group in the row
//   PART_quants  its 16 quants as bytes i8, in order;   PART_scale  its scale and least
//   PART_floats  its 16 q - ZERO, column by column;   PART_values  its 16 values
// The kernel declares `weights: array<vec4<u32>>`.
//! param PART_k: u32
const PART_SHIFT: u32 = 6u;
const PART_GROUPS: u32 = 4u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = true;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = true;

struct PART_chunk { first: vec4<u32>, second: vec4<u32>, head: vec4<u32> }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 6u) + chunk;
    let q = (plane.x >> 2u) + c * 2u;
    return PART_chunk(weights[q], weights[q + 1u], weights[(plane.y >> 2u) + (c >> 2u)]);
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 4u + i;
}

fn PART_bytes(c: PART_chunk, i: u32) -> vec4<u32> {
    return select(c.first, c.second, (i & 1u) != 0u);
}

fn PART_above(i: u32) -> bool {
    return i >= 2u;
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

//! include read_nibbles
