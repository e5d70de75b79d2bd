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

fn caches_store(at: u32, lane: u32) { // fresh_key and fresh_value to the row at `at`; a word at a time
    for (var i = lane; i < 4u * D4; i += THREADS) {
        let word = i % (2u * D4);
        let is_key = i < 2u * D4;
        let four = select(fresh_value(word / 2u), fresh_key(word / 2u), is_key);
        let two = select(four.xy, four.zw, word % 2u == 1u);
        let bits = half_bits(two.x) | (half_bits(two.y) << 16u);
        if (is_key) {
            k_cache[at + word / 2u][word % 2u] = bits;
        } else {
            v_cache[at + word / 2u][word % 2u] = bits;
        }
    }
}
