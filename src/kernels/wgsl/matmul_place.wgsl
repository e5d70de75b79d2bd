// One matrix for all vectors, tile after tile.
//! param PART_first: u32
struct Place {
    first: u32, // vectors of the tile
    end: u32,
    row: u32,   // of what is stored: where the matrix begins
}

fn place_of(tile: u32) -> Place {
    return Place(tile * TILE_N, min(tile * TILE_N + TILE_N, params.n_x), params.PART_first);
}

fn place_x(i: u32) -> u32 { // number of vector i in x
    return i;
}

fn place_out(i: u32) -> u32 { // its row of the result
    return i;
}
