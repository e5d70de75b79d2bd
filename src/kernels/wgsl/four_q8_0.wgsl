// four_q8_0 - four numbers of a Q8_0 cache: a word of quants and the bits of their scale.
//! param cache_plane: u32
alias four = vec2<u32>;

fn four_of(x: four) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(x.x)) * unpack2x16float(x.y).x;
}
