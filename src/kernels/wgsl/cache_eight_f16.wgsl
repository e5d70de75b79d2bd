// cache_eight_f16 - part `cache` of attention_lanes for F16 caches: [.., d] halves, eight in four words.
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<u32>>;

//! include eight_f16

fn k_eight(at: u32) -> eight { // at: in eights
    return k_cache[at];
}

fn v_eight(at: u32) -> eight {
    return v_cache[at];
}
