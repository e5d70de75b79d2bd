// cache_own_f16 - part `cache` for F16 caches that the dispatch also writes: [.., d] halves, four in two words. Rows that it
// stores it never reads.
@group(0) @binding(1) var<storage, read_write> k_cache: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<vec2<u32>>;

//! part half_bits
fn half_bits(value: f32) -> u32 {
    return pack2x16float(vec2<f32>(value, 0.0)) & 0xffffu;
}
//! end

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

fn halves(x: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(half_bits(x.x) | (half_bits(x.y) << 16u), half_bits(x.z) | (half_bits(x.w) << 16u));
}

fn caches_store(at: u32, lane: u32) { // fresh_key and fresh_value to the row at `at`
    for (var i = lane; i < D4; i += THREADS) {
        k_cache[at + i] = halves(fresh_key(i));
        v_cache[at + i] = halves(fresh_value(i));
    }
}
