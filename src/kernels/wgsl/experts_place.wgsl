// Part `place` of the matmul kernels for experts: tiles and their vectors come from experts_group. PART_first is the
// negative of the shard's first row, and wraps: an expert may begin before the shard and end behind it.
//! param PART_first: u32
//! param share: u32
//! param n_tile: u32
@group(0) @binding(3) var<storage, read> map: array<u32>; // tiles [n_tile] of (expert, first, end) | list of pairs

struct Place {
    first: u32, // of the list
    end: u32,
    row: u32,   // of what is stored: where the matrix begins
}

fn place_of(tile: u32) -> Place {
    return Place(map[tile * 3u + 1u], map[tile * 3u + 2u], map[tile * 3u] * params.PART_rows + params.PART_first);
}

fn place_x(i: u32) -> u32 { // `share` experts meet the same vector
    return map[params.n_tile * 3u + i] / params.share;
}

fn place_out(i: u32) -> u32 {
    return map[params.n_tile * 3u + i];
}
