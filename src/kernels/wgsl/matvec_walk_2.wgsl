// Walk of matvec over two segments of rows with the prefixes a_ and b_.
//! param b_tile: u32

fn walk(tile: u32, local: u32) {
    if (tile < params.b_tile) {
        a_tile(tile, local);
    } else {
        b_tile(tile - params.b_tile, local);
    }
}
