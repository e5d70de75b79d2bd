// Any type of blocks in matvec_batch, by what every reader has.
fn PART_centred(q: vec4<u32>) -> vec4<u32> { // bytes less ZERO
    if (PART_ZERO == 0) {
        return q;
    }
    let high = vec4<u32>(0x80808080u);
    return ((q | high) - vec4<u32>(u32(PART_ZERO) * 0x01010101u)) ^ high;
}

fn PART_decode(c: PART_chunk, chunk: u32, lane: u32, i: u32, half: u32) -> PART_Row {
    var row: PART_Row;
    row.first = PART_centred(PART_quants(c, chunk, i + half));
    if (PART_PAIRED) {
        row.second = PART_centred(PART_quants(c, chunk, i + 1u));
    }
    row.scale = PART_scale(c, chunk, i + half);
    return row;
}

//! include matvec_batch_body
