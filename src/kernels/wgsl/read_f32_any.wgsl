// Reader of F32 rows of any K, element by element; beyond the row's end are zeros. Interface: read_q4_k.
//! param PART_k: u32
const PART_SHIFT: u32 = 4u;
const PART_GROUPS: u32 = 1u;
const PART_FLOAT: bool = true;
const PART_PAIRED: bool = false;
const PART_APART: bool = false;
const PART_ZERO: i32 = 0;
const PART_LEAST: bool = false;
const PART_WORD: u32 = 1u; // elements of a word

struct PART_chunk { values: mat4x4<f32> }

fn PART_at(i: u32) -> f32 {
    return bitcast<f32>(weights[i >> 2u][i & 3u]);
}

//! include read_any

//! include read_float
