// cache_read_f16 - part `cache` for F16 caches: [.., d] halves, four in two words.
@group(0) @binding(1) var<storage, read> k_cache: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec2<u32>>;

//! include four_f16

fn k_four(at: u32) -> four { // at: in fours
    return k_cache[at];
}

fn v_four(at: u32) -> four {
    return v_cache[at];
}

fn k_load(at: u32) -> vec4<f32> {
    return four_of(k_four(at));
}

fn v_load(at: u32) -> vec4<f32> {
    return four_of(v_four(at));
}
