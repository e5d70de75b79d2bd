// cache_eight_q8_0 - part `cache` of attention_lanes for Q8_0 caches: quants i8 [.., d] | scales f16 [.., d / 32]; see
// kv_write_q8_0.
@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

//! include eight_q8_0

fn k_eight(at: u32) -> eight { // at: in eights
    let scales = k_cache[params.cache_plane + (at >> 3u)];
    return vec3<u32>(k_cache[2u * at], k_cache[2u * at + 1u], select(scales, scales >> 16u, (at & 4u) != 0u));
}

fn v_eight(at: u32) -> eight {
    let scales = v_cache[params.cache_plane + (at >> 3u)];
    return vec3<u32>(v_cache[2u * at], v_cache[2u * at + 1u], select(scales, scales >> 16u, (at & 4u) != 0u));
}
