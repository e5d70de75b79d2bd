// cache_read_q8_0 - part `cache` for Q8_0 caches: quants i8 [.., d] | scales f16 [.., d / 32]; see kv_write_q8_0.
//! param cache_plane: u32
@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

fn k_load(at: u32) -> vec4<f32> { // at: in fours
    let scales = unpack2x16float(k_cache[params.cache_plane + (at >> 4u)]);
    return vec4<f32>(unpack4xI8(k_cache[at])) * select(scales.x, scales.y, (at & 8u) != 0u);
}

fn v_load(at: u32) -> vec4<f32> {
    let scales = unpack2x16float(v_cache[params.cache_plane + (at >> 4u)]);
    return vec4<f32>(unpack4xI8(v_cache[at])) * select(scales.x, scales.y, (at & 8u) != 0u);
}
