// Epilogue of matvec with PER 2: gelu(gate) * up, rounded to int8 in blocks of 32 rows as matvec_x_quantised reads them.
// A tile is whole blocks; rows a multiple of 32. out: i8 [n_x, rows] | scale f32, sums i16[2] [n_x, rows / 32].
@group(0) @binding(2) var<storage, read_write> PART_out: array<u32>;

//! include gelu_tanh
//! include matvec_quants

const_assert TILE % 32u == 0u;
var<workgroup> PART_values_out: array<f32, TILE * N_X>;

fn PART_store(row: u32, n: u32, items: vec2<f32>) {
    PART_values_out[(n - x_first) * TILE + row % TILE] = gelu_tanh(items.x) * items.y;
}

fn PART_sixteen(at: u32) -> mat4x4<f32> {
    var v: mat4x4<f32>;
    for (var j = 0u; j < 4u; j++) {
        let i = at + j * 4u;
        v[j] = vec4<f32>(PART_values_out[i], PART_values_out[i + 1u], PART_values_out[i + 2u], PART_values_out[i + 3u]);
    }
    return v;
}

fn PART_finish(tile: u32, local: u32) {
    workgroupBarrier();
    for (var b = local; b < TILE / 32u * N_X; b += WG) {
        let n = x_first + b / (TILE / 32u);
        let row = tile * TILE + b % (TILE / 32u) * 32u;
        if (n < params.n_x && row < params.PART_rows) {
            let at = (n - x_first) * TILE + row % TILE;
            let block = block_of(PART_sixteen(at), PART_sixteen(at + 16u));
            let to = (n * params.PART_rows + row) / 4u;
            for (var j = 0u; j < 4u; j++) {
                PART_out[to + j] = block.first[j];
                PART_out[to + 4u + j] = block.second[j];
            }
            let scale = params.n_x * (params.PART_rows / 4u) + (n * params.PART_rows + row) / 16u;
            PART_out[scale] = bitcast<u32>(block.scale);
            PART_out[scale + 1u] = block_sums(block);
        }
    }
    workgroupBarrier();
}
