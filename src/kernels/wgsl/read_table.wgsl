// What the readers of types share whose quants are places in a table of 16 numbers i8: PART_TABLE, four a word. Four places
// at a time are looked up by choosing between halves, bit by bit: an index into the table for each would take as long as the rest.
//! include read_block

fn PART_number(i: u32) -> vec4<u32> {
    return vec4<u32>(((PART_TABLE[i >> 2u] >> ((i & 3u) * 8u)) & 255u) * 0x01010101u);
}

fn PART_choose(a: vec4<u32>, b: vec4<u32>, second: vec4<u32>) -> vec4<u32> {
    return a ^ ((a ^ b) & second);
}

// Numbers 4 * i to 4 * i + 3 by the lower two bits.
fn PART_fourth(i: u32, bit0: vec4<u32>, bit1: vec4<u32>) -> vec4<u32> {
    return PART_choose(PART_choose(PART_number(i * 4u), PART_number(i * 4u + 1u), bit0),
        PART_choose(PART_number(i * 4u + 2u), PART_number(i * 4u + 3u), bit0), bit1);
}

// Of the lower halves of all bytes.
fn PART_look(x: vec4<u32>) -> vec4<u32> {
    let ones = vec4<u32>(0x01010101u);
    let bit0 = (x & ones) * 255u;
    let bit1 = ((x >> vec4<u32>(1u)) & ones) * 255u;
    let bit2 = ((x >> vec4<u32>(2u)) & ones) * 255u;
    let bit3 = ((x >> vec4<u32>(3u)) & ones) * 255u;
    return PART_choose(PART_choose(PART_fourth(0u, bit0, bit1), PART_fourth(1u, bit0, bit1), bit2),
        PART_choose(PART_fourth(2u, bit0, bit1), PART_fourth(3u, bit0, bit1), bit2), bit3);
}
