// attention_lanes_fresh_none - part `fresh` of attention_lanes_heads where the caches hold this run's rows already.
fn fresh_load(line: u32, at: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn fresh_store(row: u32, kv: u32, lane: u32) {
}
