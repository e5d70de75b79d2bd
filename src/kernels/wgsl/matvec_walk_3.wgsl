// Walk of matvec over three segments of rows with the prefixes a_, b_ and c_.
//! param b_tile: u32
//! param c_tile: u32

fn walk_fetch(tile: u32, local: u32) {
    if (tile < params.b_tile) {
        a_fetch(tile, local % LANES, local);
    } else if (tile < params.c_tile) {
        b_fetch(tile - params.b_tile, local % LANES, local);
    } else {
        c_fetch(tile - params.c_tile, local % LANES, local);
    }
}

// The segment that `next` is in fetches its first step itself.
fn walk(tile: u32, next: u32, local: u32) {
    var end = params.n_tile;
    if (tile < params.b_tile) {
        end = params.b_tile;
        a_tile(tile, select(NONE, next, next < end), local);
    } else if (tile < params.c_tile) {
        end = params.c_tile;
        b_tile(tile - params.b_tile, select(NONE, next - params.b_tile, next < end), local);
    } else {
        c_tile(tile - params.c_tile, select(next - params.c_tile, NONE, next == NONE), local);
    }
    if (next >= end && next != NONE) {
        walk_fetch(next, local);
    }
}
