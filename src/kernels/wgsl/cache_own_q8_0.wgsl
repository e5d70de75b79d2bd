// cache_own_q8_0 - part `cache` for Q8_0 caches that the dispatch also writes: quants i8 [.., d] | scales f16 [.., d / 32];
// see kv_write_q8_0. d is a multiple of 64, so that no two rows share a word of scales. Rows that it stores it never reads.
@group(0) @binding(1) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<u32>;

//! part half_bits
fn half_bits(value: f32) -> u32 {
    return pack2x16float(vec2<f32>(value, 0.0)) & 0xffffu;
}
//! end

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

fn fresh_four(key: bool, i: u32) -> vec4<f32> {
    if (key) {
        return fresh_key(i);
    }
    return fresh_value(i);
}

fn scale_bits(key: bool, block: u32) -> u32 {
    var most = vec4<f32>(0.0);
    for (var i = 0u; i < 8u; i++) {
        most = max(most, abs(fresh_four(key, block * 8u + i)));
    }
    return half_bits(max(max(most.x, most.y), max(most.z, most.w)) / 127.0);
}

fn quants(x: vec4<f32>, scale: f32) -> u32 {
    if (!(scale > 0.0)) {
        return 0u;
    }
    let q = bitcast<vec4<u32>>(vec4<i32>(clamp(round(x / scale), vec4<f32>(-127.0), vec4<f32>(127.0)))) & vec4<u32>(0xffu);
    return q.x | (q.y << 8u) | (q.z << 16u) | (q.w << 24u);
}

fn caches_store(at: u32, lane: u32) { // fresh_key and fresh_value to the row at `at`: a lane two blocks of one of them
    for (var i = lane; i < D4 / 8u; i += THREADS) {
        let key = i < D4 / 16u;
        let pair = i % (D4 / 16u);
        let bits = scale_bits(key, pair * 2u) | (scale_bits(key, pair * 2u + 1u) << 16u);
        let scales = unpack2x16float(bits);
        for (var k = 0u; k < 16u; k++) {
            let word = quants(fresh_four(key, pair * 16u + k), select(scales.x, scales.y, k >= 8u));
            if (key) {
                k_cache[at + pair * 16u + k] = word;
            } else {
                v_cache[at + pair * 16u + k] = word;
            }
        }
        if (key) {
            k_cache[params.cache_plane + (at >> 4u) + pair] = bits;
        } else {
            v_cache[params.cache_plane + (at >> 4u) + pair] = bits;
        }
    }
}
