// cache_read_f16 - part `cache` for F16 caches: [.., d] halves, four in two words.
@group(0) @binding(1) var<storage, read> k_cache: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec2<u32>>;

fn k_load(at: u32) -> vec4<f32> { // at: in fours
    let words = k_cache[at];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn v_load(at: u32) -> vec4<f32> {
    let words = v_cache[at];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
