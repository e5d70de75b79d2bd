// Walk of matvec over two segments of rows with the prefixes a_ and b_.
//! param b_tile: u32

fn walk_fetch(tile: u32, local: u32) {
    if (tile < params.b_tile) {
        a_fetch(tile, local % LANES, local);
    } else {
        b_fetch(tile - params.b_tile, local % LANES, local);
    }
}

// The segment that `next` is in fetches its first step itself.
fn walk(tile: u32, next: u32, local: u32) {
    if (tile < params.b_tile) {
        a_tile(tile, select(NONE, next, next < params.b_tile), local);
        if (next >= params.b_tile && next != NONE) {
            walk_fetch(next, local);
        }
    } else {
        b_tile(tile - params.b_tile, select(next - params.b_tile, NONE, next == NONE), local);
    }
}
