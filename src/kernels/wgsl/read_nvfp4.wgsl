// Reader of NVFP4 rows (pack.c: indices 32 bytes | scales e4m3[4] a block of 64): doubled values, so the scale is half of the
// e4m3. Eight bytes hold 16 elements: the first eight in their lower halves. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 5u;
const PART_GROUPS: u32 = 2u;
const PART_FLOAT: bool = false;
const PART_PAIRED: bool = false;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;

// 16 values i8, four a word; a nibble is their index.
const PART_TABLE = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);

struct PART_chunk { q: vec4<u32>, scales: u32 }

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let c = row * (params.PART_k >> 5u) + chunk;
    return PART_chunk(weights[(plane.x >> 2u) + c], PART_word(plane.y + (c >> 1u)) >> ((c & 1u) * 16u));
}

fn PART_group(chunk: u32, i: u32) -> u32 {
    return chunk * 2u + i;
}

fn PART_quants(c: PART_chunk, chunk: u32, i: u32) -> vec4<u32> {
    let q = select(c.q.xy, c.q.zw, i == 1u);
    return PART_look(vec4<u32>(q, q >> vec2<u32>(4u)));
}

fn PART_scale(c: PART_chunk, chunk: u32, i: u32) -> vec2<f32> {
    let half = ((c.scales >> (i * 8u)) & 0x7fu) << 7u; // an f16 but for its exponent's bias, 15 in place of 7
    return vec2<f32>(unpack2x16float(half).x * 128.0, 0.0);
}

//! include read_table
