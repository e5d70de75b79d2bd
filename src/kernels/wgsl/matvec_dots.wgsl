// Integer dot products of 16 bytes and what makes floats of them without conversion: a sum that begins at the bits of
// 1.5 * 2^23 is, up to 2^22 either way, a float that much larger; from those of 1.5 * 2^19 on each step counts a sixteenth.
const DOT_START: i32 = 0x4b400000;
const DOT_START_SIXTEENTH: i32 = 0x49400000;

fn dot_bytes(start: i32, a: vec4<u32>, b: vec4<u32>) -> i32 {
    var sum = start;
    sum += dot4I8Packed(a.x, b.x);
    sum += dot4I8Packed(a.y, b.y);
    sum += dot4I8Packed(a.z, b.z);
    sum += dot4I8Packed(a.w, b.w);
    return sum;
}

fn dot_float(sum: i32) -> f32 {
    return bitcast<f32>(sum) - 12582912.0;
}

fn dot_sixteenth(sum: i32) -> f32 {
    return bitcast<f32>(sum) - 786432.0;
}

// The value, out of the compiler's sight (k is below 2^31): two constants in one operation become two operations on NVIDIA,
// a constant and a register only one.
fn dot_known(value: u32) -> u32 {
    return value | (params.k >> 31u);
}

// Byte 0 or 1 of a word, i8, as a float.
fn dot_byte(word: u32, i: u32) -> f32 {
    if (i == 0u) {
        return bitcast<f32>((word & 0xffu) ^ dot_known(0x4b000080u)) - 8388736.0;
    }
    return bitcast<f32>((word & 0xff00u) ^ dot_known(0x47008000u)) - 32896.0;
}

// Scale and sums of a block's halves, two i16, as vectors carry them: the scale, and the sum of all, scaled.
fn dot_scaled(numbers: vec2<u32>) -> vec2<f32> {
    let sums = bitcast<i32>(numbers.y);
    return bitcast<f32>(numbers.x) * vec2<f32>(1.0, f32(((sums << 16u) >> 16u) + (sums >> 16u)));
}
