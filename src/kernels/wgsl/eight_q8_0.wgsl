// eight_q8_0 - eight numbers of a Q8_0 cache: two words of quants and the bits of their scale.
//! param cache_plane: u32
alias eight = vec3<u32>;

fn eight_low(e: eight) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(e.x)) * unpack2x16float(e.z).x;
}

fn eight_high(e: eight) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(e.y)) * unpack2x16float(e.z).x;
}
