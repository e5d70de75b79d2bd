// cache_eight_own_f32 - part `cache` of attention_lanes for F32 caches that the dispatch also writes. Rows that it stores it
// never reads.
@group(0) @binding(1) var<storage, read_write> k_cache: array<mat2x4<f32>>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<mat2x4<f32>>;

//! include eight_f32

fn k_eight(at: u32) -> eight { // at: in eights
    return k_cache[at];
}

fn v_eight(at: u32) -> eight {
    return v_cache[at];
}

fn caches_store(at: u32, local: u32) { // fresh_key and fresh_value to the row at `at`, in fours
    for (var i = local; i < D4 / 2u; i += THREADS) {
        k_cache[at / 2u + i] = mat2x4<f32>(fresh_key(2u * i), fresh_key(2u * i + 1u));
        v_cache[at / 2u + i] = mat2x4<f32>(fresh_value(2u * i), fresh_value(2u * i + 1u));
    }
}
