// attention_fresh_none - part `fresh` of attention_start_heads where the caches hold this run's rows already.
fn fresh_load(row: u32, kv: u32, lane: u32) {
}

fn fresh_at(line: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_put(line: u32, i: u32, what: vec4<f32>) {
}

fn fresh_key(i: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_value(column: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
}
