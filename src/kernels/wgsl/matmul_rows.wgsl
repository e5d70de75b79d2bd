// What the kernels for many vectors share: weight rows of a tile, and how groups of 16 elements lie in chunks.

fn plane_of(j: u32) -> vec4<u32> {
    if (PER == 1u || j == 0u) {
        return vec4<u32>(params.PART_plane0, params.PART_plane1, params.PART_plane2, params.PART_plane3);
    }
    return vec4<u32>(params.PART_up0, params.PART_up1, params.PART_up2, params.PART_up3);
}

// A matrix may begin before the stored rows or end behind them (experts over several shards): place.row wraps.
fn is_stored(place: Place, row: u32) -> bool {
    return row < params.PART_rows && place.row + row < params.PART_stored;
}

fn tile_is_stored(place: Place, row: u32) -> bool {
    let last = min(row + COLS, params.PART_rows) - 1u;
    return place.row + row < params.PART_stored || place.row + last < params.PART_stored ||
        place.row + row > place.row + last; // begins before the stored rows and ends behind their first
}

fn stored_row(place: Place, row: u32) -> u32 { // some row that is there, where it is not stored
    return select(0u, place.row + row, is_stored(place, row));
}

fn chunk_of(group: u32) -> u32 {
    if (PART_APART) {
        return (group >> 3u) * 2u + (group & 1u);
    }
    return group >> (PART_SHIFT - 4u);
}

fn part_of(group: u32) -> u32 {
    if (PART_APART) {
        return (group >> 1u) & 3u;
    }
    return group & (PART_GROUPS - 1u);
}
