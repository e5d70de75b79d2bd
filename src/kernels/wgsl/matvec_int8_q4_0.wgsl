// Q4_0 over int8 vectors; see matvec_body_int8. A chunk is one block; both nibbles are made 16 * (q - 8).
struct PART_weights { first: vec4<u32>, second: vec4<u32>, d: f32 }

fn PART_unpack(c: PART_chunk, turn: u32) -> PART_weights {
    let mask = vec4<u32>(0xf0f0f0f0u);
    let sign = vec4<u32>(dot_known(0x80808080u));
    return PART_weights(((c.q << vec4<u32>(4u)) & mask) ^ sign, (c.q & mask) ^ sign, c.d);
}

struct PART_vectors { first: vec4<u32>, second: vec4<u32>, scale: f32 }

fn PART_vector(n: u32, chunk: u32, turn: u32) -> PART_vectors {
    let odd = turn & 1u;
    let four = (chunk - odd) / 2u;
    return PART_vectors(x_quants(n, four, 0u, odd), x_quants(n, four, 1u, odd), x_block(n, chunk).x);
}

fn PART_product(w: PART_weights, x: PART_vectors) -> f32 {
    return w.d * x.scale * dot_sixteenth(dot_bytes(dot_bytes(DOT_START_SIXTEENTH, w.first, x.first), w.second, x.second));
}

//! include matvec_body_int8
