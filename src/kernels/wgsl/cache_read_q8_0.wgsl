// cache_read_q8_0 - part `cache` for Q8_0 caches: quants i8 [.., d] | scales f16 [.., d / 32]; see kv_write_q8_0.
@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

//! include four_q8_0

fn k_four(at: u32) -> four { // at: in fours
    let scales = k_cache[params.cache_plane + (at >> 4u)];
    return vec2<u32>(k_cache[at], select(scales, scales >> 16u, (at & 8u) != 0u));
}

fn v_four(at: u32) -> four {
    let scales = v_cache[params.cache_plane + (at >> 4u)];
    return vec2<u32>(v_cache[at], select(scales, scales >> 16u, (at & 8u) != 0u));
}

fn k_load(at: u32) -> vec4<f32> {
    return four_of(k_four(at));
}

fn v_load(at: u32) -> vec4<f32> {
    return four_of(v_four(at));
}
