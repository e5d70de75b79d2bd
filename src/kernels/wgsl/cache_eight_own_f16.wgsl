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

fn caches_store(at: u32, local: u32) { // fresh_key and fresh_value to the row at `at`, in fours; a word at a time
    for (var i = local; i < 4u * D4; i += THREADS) {
        let word = i % (2u * D4);
        let is_key = i < 2u * D4;
        let four = select(fresh_value(word / 2u), fresh_key(word / 2u), is_key);
        let two = select(four.xy, four.zw, word % 2u == 1u);
        let bits = half_bits(two.x) | (half_bits(two.y) << 16u);
        if (is_key) {
            k_cache[at / 2u + word / 4u][word % 4u] = bits;
        } else {
            v_cache[at / 2u + word / 4u][word % 4u] = bits;
        }
    }
}
