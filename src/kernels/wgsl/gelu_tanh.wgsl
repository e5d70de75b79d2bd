// gelu in its tanh form. The argument is cut where tanh is 1 in f32, since some devices overflow beyond.
fn gelu_tanh(x: f32) -> f32 {
    let t = clamp(0.79788456 * (x + 0.044715 * x * x * x), -10.0, 10.0);
    return 0.5 * x * (1.0 + tanh(t));
}
