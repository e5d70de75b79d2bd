// Any type of blocks over int8 vectors; see matvec_body_int8. Group by group, by what every reader has.
const PART_STEP: u32 = select(1u, 2u, PART_PAIRED); // groups with one scale

struct PART_weights { quants: array<vec4<u32>, PART_GROUPS>, scales: array<vec2<f32>, PART_GROUPS> }

fn PART_unpack(c: PART_chunk, turn: u32) -> PART_weights {
    var w: PART_weights;
    for (var i = 0u; i < PART_GROUPS; i++) {
        w.quants[i] = PART_quants(c, turn, i);
        if (i % PART_STEP == 0u) {
            w.scales[i] = PART_scale(c, turn, i);
        }
    }
    return w;
}

struct PART_vectors { quants: array<vec4<u32>, PART_GROUPS>, scales: array<vec2<f32>, PART_GROUPS> } // scale; sum, scaled

fn PART_vector(n: u32, chunk: u32, turn: u32) -> PART_vectors {
    var x: PART_vectors;
    for (var i = 0u; i < PART_GROUPS; i++) {
        let group = PART_group(chunk, i);
        x.quants[i] = x_quants(n, group >> 2u, group & 1u, (group >> 1u) & 1u);
        if (i % PART_STEP == 0u) {
            x.scales[i] = x_block(n, group >> 1u);
            if (!PART_PAIRED && (PART_LEAST || PART_ZERO != 0)) { // the sum of half a block
                x.scales[i].y = x.scales[i].x * f32(dot_bytes(0, x.quants[i], vec4<u32>(0x01010101u)));
            }
        }
    }
    return x;
}

fn PART_product(w: PART_weights, x: PART_vectors) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < PART_GROUPS; i += PART_STEP) {
        var q = dot_bytes(DOT_START, w.quants[i], x.quants[i]);
        if (PART_PAIRED) {
            q = dot_bytes(q, w.quants[i + PART_STEP - 1u], x.quants[i + PART_STEP - 1u]);
        }
        let own = w.scales[i];
        sum += own.x * (x.scales[i].x * dot_float(q)) - (own.x * f32(PART_ZERO) + own.y) * x.scales[i].y;
    }
    return sum;
}

//! include matvec_body_int8
