// four_f16 - four numbers of an F16 cache: 8 bytes.
alias four = vec2<u32>;

fn four_of(x: four) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y));
}
