// eight_f16 - eight numbers of an F16 cache: 16 bytes.
alias eight = vec4<u32>;

fn eight_low(e: eight) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(e.x), unpack2x16float(e.y));
}

fn eight_high(e: eight) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(e.z), unpack2x16float(e.w));
}
