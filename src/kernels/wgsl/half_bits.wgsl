// half_bits - f32 to the bits of an f16 by integers: nearest even on every device (pack2x16float and f16() may round as
// they like). Overflow gives infinity, NaN stays NaN. Without branches, since it stands many times in a kernel.
fn half_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    let small = magnitude < 0x38800000u; // a subnormal half, or 0: the bits below its last one are cut off
    let shift = select(13u, min(126u - min(magnitude >> 23u, 126u), 25u), small);
    let whole = select(magnitude - 0x38000000u, (magnitude & 0x7fffffu) | 0x800000u, small);
    let rounded = (whole + ((1u << (shift - 1u)) - 1u) + ((whole >> shift) & 1u)) >> shift;
    let large = select(0x7c00u, 0x7e00u, magnitude > 0x7f800000u);
    return ((bits >> 16u) & 0x8000u) | select(rounded, large, magnitude >= 0x47800000u);
}
