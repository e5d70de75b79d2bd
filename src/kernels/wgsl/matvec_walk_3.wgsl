// Walk of matvec over three segments of rows with the prefixes a_, b_ and c_.
//! param b_tile: u32
//! param c_tile: u32

fn walk(tile: u32, local: u32) {
    if (tile < params.b_tile) {
        a_tile(tile, local);
    } else if (tile < params.c_tile) {
        b_tile(tile - params.b_tile, local);
    } else {
        c_tile(tile - params.c_tile, local);
    }
}
