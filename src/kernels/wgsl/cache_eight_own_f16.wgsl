// cache_eight_own_f16 - part `cache` of attention_lanes for F16 caches that the dispatch also writes. Rows that it stores it
// never reads.
@group(0) @binding(1) var<storage, read_write> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<vec4<u32>>;

//! include eight_f16

//! part half_bits
fn half_bits(value: f32) -> u32 {
    return pack2x16float(vec2<f32>(value, 0.0)) & 0xffffu;
}
//! end

fn k_eight(at: u32) -> eight { // at: in eights
    return k_cache[at];
}

fn v_eight(at: u32) -> eight {
    return v_cache[at];
}

fn halves(x: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(half_bits(x.x) | (half_bits(x.y) << 16u), half_bits(x.z) | (half_bits(x.w) << 16u));
}

fn caches_store(at: u32, local: u32) { // fresh_key and fresh_value to the row at `at`, in fours
    for (var i = local; i < D4; i += THREADS) {
        if (i < D4 / 2u) {
            k_cache[at / 2u + i] = vec4<u32>(halves(fresh_key(2u * i)), halves(fresh_key(2u * i + 1u)));
        } else {
            let j = i - D4 / 2u;
            v_cache[at / 2u + j] = vec4<u32>(halves(fresh_value(2u * j)), halves(fresh_value(2u * j + 1u)));
        }
    }
}
