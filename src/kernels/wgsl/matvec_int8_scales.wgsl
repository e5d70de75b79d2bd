// The 6-bit scales and leasts of both blocks of a Q4_K or Q5_K chunk: (scale, scale, least, least). They lie in bytes: those
// of blocks 0 to 3 whole, of the others the upper two bits apart.
fn PART_scales(head: vec4<u32>, turn: u32) -> vec4<f32> {
    let shift = (turn & 1u) * 16u;
    let far = (turn & 2u) != 0u;
    let upper = shift + (turn & 2u);
    let mask = select(0x3f3fu, 0x3030u, far);
    let rest = select(0u, 0x0f0fu, far);
    let scale = ((head.y >> upper) & mask) | ((head.w >> shift) & rest);
    let least = ((head.z >> upper) & mask) | ((head.w >> (shift + 4u)) & rest);
    return vec4<f32>(dot_byte(scale, 0u), dot_byte(scale, 1u), dot_byte(least, 0u), dot_byte(least, 1u));
}
