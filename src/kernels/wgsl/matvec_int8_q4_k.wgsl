// Q4_K over int8 vectors; see matvec_body_int8. A chunk is two blocks: low nibbles and high ones.
//! include matvec_int8_scales
struct PART_weights {
    low: array<vec4<u32>, 2>,  // q
    high: array<vec4<u32>, 2>, // 16 * (q - 8): the nibbles where they lie, the upper bit turned
    scale: vec2<f32>,
    least: vec2<f32>,
    d: vec2<f32>,              // of all scales, of all leasts
}

fn PART_unpack(c: PART_chunk, turn: u32) -> PART_weights {
    let s = PART_scales(c.head, turn);
    var w: PART_weights;
    w.low[0] = c.first & vec4<u32>(0x0f0f0f0fu);
    w.low[1] = c.second & vec4<u32>(0x0f0f0f0fu);
    w.high[0] = (c.first & vec4<u32>(0xf0f0f0f0u)) ^ vec4<u32>(dot_known(0x80808080u));
    w.high[1] = (c.second & vec4<u32>(0xf0f0f0f0u)) ^ vec4<u32>(dot_known(0x80808080u));
    w.scale = s.xy;
    w.least = s.zw;
    w.d = unpack2x16float(c.head.x);
    return w;
}

struct PART_vectors { quants: array<vec4<u32>, 4>, scales: vec4<f32> }

fn PART_vector(n: u32, chunk: u32, turn: u32) -> PART_vectors {
    var x: PART_vectors;
    x.quants[0] = x_quants(n, chunk, 0u, 0u);
    x.quants[1] = x_quants(n, chunk, 1u, 0u);
    x.quants[2] = x_quants(n, chunk, 0u, 1u);
    x.quants[3] = x_quants(n, chunk, 1u, 1u);
    x.scales = x_pair(n, chunk);
    return x;
}

fn PART_product(w: PART_weights, x: PART_vectors) -> f32 {
    let low = dot_float(dot_bytes(dot_bytes(DOT_START, w.low[0], x.quants[0]), w.low[1], x.quants[1]));
    let high = dot_sixteenth(dot_bytes(dot_bytes(DOT_START_SIXTEENTH, w.high[0], x.quants[2]), w.high[1], x.quants[3]));
    let sum = w.scale.x * (x.scales.x * low) + w.scale.y * (x.scales.z * high + 8.0 * x.scales.w);
    return w.d.x * sum - w.d.y * (w.least.x * x.scales.y + w.least.y * x.scales.w);
}

//! include matvec_body_int8
