// half_bits - f32 to the bits of an f16 by integers: nearest even on every device (pack2x16float and f16() may round as
// they like). Overflow gives infinity, NaN stays NaN.
fn half_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x47800000u) {
        return sign | select(0x7c00u, 0x7e00u, magnitude > 0x7f800000u);
    }
    if (magnitude >= 0x38800000u) {
        let rebased = magnitude - 0x38000000u;
        return sign | ((rebased + 0xfffu + ((rebased >> 13u) & 1u)) >> 13u);
    }
    if (magnitude < 0x33000000u) { // below half of the smallest subnormal
        return sign;
    }
    let shift = 126u - (magnitude >> 23u);
    let mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    return sign | (whole + select(0u, 1u, rest > middle || (rest == middle && (whole & 1u) == 1u)));
}
