// A chunk of plain values from PART_at(element of the binding), for rows that may begin and end anywhere.

fn PART_load(plane: vec4<u32>, row: u32, chunk: u32) -> PART_chunk {
    let left = params.PART_k - chunk * 16u;
    let at = plane.x * PART_WORD + row * params.PART_k + chunk * 16u;
    var v: mat4x4<f32>;
    for (var j = 0u; j < 4u; j++) {
        let i = j * 4u;
        v[j] = vec4<f32>(
            select(0.0, PART_at(at + min(i, left - 1u)), i < left),
            select(0.0, PART_at(at + min(i + 1u, left - 1u)), i + 1u < left),
            select(0.0, PART_at(at + min(i + 2u, left - 1u)), i + 2u < left),
            select(0.0, PART_at(at + min(i + 3u, left - 1u)), i + 3u < left));
    }
    return PART_chunk(v);
}

fn PART_values(c: PART_chunk, chunk: u32, i: u32) -> mat4x4<f32> {
    return c.values;
}
