// eight_f32 - eight numbers of an F32 cache.
alias eight = mat2x4<f32>;

fn eight_low(e: eight) -> vec4<f32> {
    return e[0];
}

fn eight_high(e: eight) -> vec4<f32> {
    return e[1];
}
