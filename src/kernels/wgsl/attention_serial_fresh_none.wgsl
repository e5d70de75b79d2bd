// attention_serial_fresh_none - part `fresh` of attention_serial_heads where the caches hold this run's rows already.
fn fresh_make(row: u32, head: u32) {
}

fn fresh_key(i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_value(i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}
