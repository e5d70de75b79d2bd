// Rounding of 32 values to int8 by 8 neighbouring invocations of a subgroup, four values each. All invocations come here.
struct Rounded {
    quants: u32,  // of the four
    scale: f32,   // of the 32
    sums: u32,    // in the first of the 8: of the quants of each half, as two i16
}

fn round_four(v: vec4<f32>) -> Rounded {
    var largest = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
    largest = max(largest, subgroupShuffleXor(largest, 1u));
    largest = max(largest, subgroupShuffleXor(largest, 2u));
    largest = max(largest, subgroupShuffleXor(largest, 4u));
    let factor = select(0.0, 127.0 / largest, largest > 1e-30); // smaller ones would overflow
    let quants = pack4xI8(vec4<i32>(round(v * factor)));
    var sum = dot4I8Packed(quants, 0x01010101u);
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    return Rounded(quants, largest / 127.0, bitcast<u32>((sum & 0xffff) | (subgroupShuffleXor(sum, 4u) << 16u)));
}
