// Reader of F16 rows of any K, element by element; beyond the row's end are zeros. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 4u;
const PART_GROUPS: u32 = 1u;
const PART_FLOAT: bool = true;
const PART_PAIRED: bool = false;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;
const PART_WORD: u32 = 2u; // elements of a word

struct PART_chunk { values: mat4x4<f32> }

fn PART_at(i: u32) -> f32 {
    let word = weights[i >> 3u][(i >> 1u) & 3u];
    return unpack2x16float(word)[i & 1u];
}

//! include read_any

//! include read_float
