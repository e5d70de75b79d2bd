// matvec_store_geglu_int8 for subgroups of 8 and more: 8 invocations round a block together.
@group(0) @binding(2) var<storage, read_write> PART_out: array<u32>;

//! include gelu_tanh
//! include matvec_round

const_assert TILE % 32u == 0u;
const PART_FOURS: u32 = TILE / 4u * N_X; // a tile's
var<workgroup> PART_values_out: array<f32, TILE * N_X>;

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    PART_values_out[(n - x_first) * TILE + row % TILE] = gelu_tanh(items.x) * items.y;
}

fn PART_finish(tile: u32, local: u32) {
    workgroupBarrier();
    for (var first = 0u; first < PART_FOURS; first += WG) {
        let i = min(first + local, PART_FOURS - 1u);
        let rounded = round_four(vec4<f32>(PART_values_out[i * 4u], PART_values_out[i * 4u + 1u], PART_values_out[i * 4u + 2u], PART_values_out[i * 4u + 3u]));
        let n = x_first + i / (TILE / 4u);
        let row = tile * TILE + i % (TILE / 4u) * 4u;
        if (first + local < PART_FOURS && n < params.n_x && row < params.PART_rows) {
            let at = n * params.PART_rows + row;
            PART_out[at / 4u] = rounded.quants;
            if (local % 8u == 0u) {
                let scale = params.n_x * (params.PART_rows / 4u) + at / 16u;
                PART_out[scale] = bitcast<u32>(rounded.scale);
                PART_out[scale + 1u] = rounded.sums;
            }
        }
    }
    workgroupBarrier();
}
