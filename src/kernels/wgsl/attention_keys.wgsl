// attention_keys - what a row of attention sees; for kernels that bind slot and pos.
//! param n_slot: u32

const TOTAL_MIN: f32 = 1e-30; // below any sum of weights, whose largest is 1: so a row without keys becomes 0

struct RowKeys {
    first: u32, // keys first .. end - 1: at most a window, and what the ring holds
    end: u32,   // none where the position is negative or the slot is none: first = end = 0
}

fn row_keys(row: u32) -> RowKeys {
    let place = u32(slot[params.slot_offset + row]);
    let last = u32(pos[params.pos_offset + row]);
    let end = select(0u, last + 1u, place < params.n_slot && last <= 0x7fffffffu);
    let most = select(params.n_row, min(params.n_row, params.window), params.window > 0u);
    return RowKeys(end - min(end, most), end);
}
