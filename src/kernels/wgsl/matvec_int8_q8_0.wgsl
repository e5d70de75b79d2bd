// Q8_0 over int8 vectors; see matvec_body_int8. A chunk is one block.
struct PART_weights { first: vec4<u32>, second: vec4<u32>, d: f32 }

fn PART_unpack(c: PART_chunk, turn: u32) -> PART_weights {
    return PART_weights(c.first, c.second, c.d);
}

struct PART_vectors { first: vec4<u32>, second: vec4<u32>, scale: f32 }

fn PART_vector(n: u32, chunk: u32, turn: u32) -> PART_vectors {
    let odd = turn & 1u;
    let four = (chunk - odd) / 2u;
    return PART_vectors(x_quants(n, four, 0u, odd), x_quants(n, four, 1u, odd), x_block(n, chunk).x);
}

fn PART_product(w: PART_weights, x: PART_vectors) -> f32 {
    return w.d * x.scale * dot_float(dot_bytes(dot_bytes(DOT_START, w.first, x.first), w.second, x.second));
}

//! include matvec_body_int8
