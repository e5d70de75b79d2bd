// cache_own_f32 - part `cache` for F32 caches that the dispatch also writes: [.., d]. Rows that it stores it never reads.
@group(0) @binding(1) var<storage, read_write> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<vec4<f32>>;

//! include four_f32

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

fn caches_store(at: u32, lane: u32) { // fresh_key and fresh_value to the row at `at`
    for (var i = lane; i < D4; i += THREADS) {
        k_cache[at + i] = fresh_key(i);
        v_cache[at + i] = fresh_value(i);
    }
}
