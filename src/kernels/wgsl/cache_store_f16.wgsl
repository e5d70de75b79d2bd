// cache_store_f16 - part `cache_store` of kv_write for F16 caches: [.., d] halves, four in two words.
@group(0) @binding(3) var<storage, read_write> cache: array<vec2<u32>>;

//! part half_bits
fn half_bits(value: f32) -> u32 {
    return pack2x16float(vec2<f32>(value, 0.0)) & 0xffffu;
}
//! end

fn cache_store(at: u32, value: vec4<f32>) { // at: in fours
    cache[at] = vec2<u32>(half_bits(value.x) | (half_bits(value.y) << 16u), half_bits(value.z) | (half_bits(value.w) << 16u));
}
