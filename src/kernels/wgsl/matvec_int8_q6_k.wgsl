// Q6_K over int8 vectors; see matvec_body_int8. Quants are made as 4 * (q - 32): the upper two bits come to lie at a byte's
// upper end, and no sums of the vector are needed. The chunk's groups are halves of four blocks.
struct PART_weights { quants: array<vec4<u32>, 4>, scale: vec4<f32>, d: f32 }

fn PART_unpack(c: PART_chunk, turn: u32) -> PART_weights {
    let four = vec4<u32>(0x3c3c3c3cu);
    let two = vec4<u32>(0xc0c0c0c0u);
    let high = c.high ^ vec4<u32>(0xaaaaaaaau); // the sign
    var w: PART_weights;
    w.quants[0] = ((c.first << vec4<u32>(2u)) & four) | ((high << vec4<u32>(6u)) & two);
    w.quants[1] = ((c.second << vec4<u32>(2u)) & four) | ((high << vec4<u32>(4u)) & two);
    w.quants[2] = ((c.first >> vec4<u32>(2u)) & four) | ((high << vec4<u32>(2u)) & two);
    w.quants[3] = ((c.second >> vec4<u32>(2u)) & four) | (high & two);
    let own = c.scale >> vec2<u32>((turn & 1u) * 8u); // bytes 0 and 2
    let next = own >> vec2<u32>(16u);
    w.scale = vec4<f32>(dot_byte(own.x, 0u), dot_byte(next.x, 0u), dot_byte(own.y, 0u), dot_byte(next.y, 0u));
    w.d = 0.25 * c.d;
    return w;
}

struct PART_vectors { quants: array<vec4<u32>, 4>, scales: vec4<f32> }

fn PART_vector(n: u32, chunk: u32, turn: u32) -> PART_vectors {
    let half = turn & 1u;
    let four = chunk - half;
    var x: PART_vectors;
    x.quants[0] = x_quants(n, four, half, 0u);
    x.quants[1] = x_quants(n, four, half, 1u);
    x.quants[2] = x_quants(n, four + 1u, half, 0u);
    x.quants[3] = x_quants(n, four + 1u, half, 1u);
    x.scales = vec4<f32>(x_pair(n, four).xz, x_pair(n, four + 1u).xz);
    return x;
}

fn PART_product(w: PART_weights, x: PART_vectors) -> f32 {
    let q = vec4<f32>(dot_float(dot_bytes(DOT_START, w.quants[0], x.quants[0])), dot_float(dot_bytes(DOT_START, w.quants[1], x.quants[1])),
        dot_float(dot_bytes(DOT_START, w.quants[2], x.quants[2])), dot_float(dot_bytes(DOT_START, w.quants[3], x.quants[3])));
    return w.d * dot(w.scale, x.scales * q);
}

//! include matvec_body_int8
