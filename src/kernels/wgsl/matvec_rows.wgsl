// What the bodies of matvec share: the rows of a tile, and what happens to the sums. The segment's results are `rows`
// rows of the weight from row `first` on; plane: where its planes begin; up: those of the second weight where PER is 2.
//! param PART_rows: u32
//! param PART_first: u32
//! param PART_plane0: u32
//! param PART_plane1: u32
//! param PART_plane2: u32
//! param PART_plane3: u32
//! param PART_up0: u32
//! param PART_up1: u32
//! param PART_up2: u32
//! param PART_up3: u32

fn PART_plane(j: u32) -> vec4<u32> {
    if (j == 0u) {
        return vec4<u32>(params.PART_plane0, params.PART_plane1, params.PART_plane2, params.PART_plane3);
    }
    return vec4<u32>(params.PART_up0, params.PART_up1, params.PART_up2, params.PART_up3);
}

fn PART_row(tile: u32, slot: u32, r: u32, chunk: u32) -> u32 {
    return matrix_row(params.PART_first + min(tile * TILE + r * SLOTS + slot, params.PART_rows - 1u), chunk);
}

fn PART_end(tile: u32, local: u32, sums: ptr<function, array<f32, ITEMS>>) {
    reduce(sums, local);
    let lane = local % LANES;
    for (var o = 0u; o < OUTS; o++) {
        let row = tile * TILE + (o / N_X) * SLOTS + local / LANES;
        let n = x_first + o % N_X;
        if (o % LANES == lane && row < params.PART_rows && n < params.n_x && matrix_holds(params.PART_first + row)) {
            PART_store(row, n, vec2<f32>((*sums)[o * PER], (*sums)[o * PER + PER - 1u]));
        }
    }
    PART_finish(tile, local);
}
