// four_f32 - four numbers of an F32 cache.
alias four = vec4<f32>;

fn four_of(x: four) -> vec4<f32> {
    return x;
}
