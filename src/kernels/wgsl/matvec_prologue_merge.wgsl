// Vectors from the pieces of attention_decode: x partial [n_x, H, n_split, d], stats [n_x, H, n_split] (max, sum);
// k = H * d. d a multiple of 4.
//! param n_split: u32
//! param d: u32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;

fn prologue_begin(local: u32) {
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3, all of one head
    let head = x_row(n) * (params.k / params.d) + i * 4u / params.d;
    let column = i % (params.d / 4u);
    var most = -3.0e38;
    for (var s = 0u; s < params.n_split; s++) {
        let one = stats[head * params.n_split + s];
        most = select(most, max(most, one.x), one.y > 0.0);
    }
    var total = 0.0;
    var sum = vec4<f32>(0.0);
    for (var s = 0u; s < params.n_split; s++) {
        let one = stats[head * params.n_split + s];
        if (one.y > 0.0) { // else a piece without keys
            let weight = exp(one.x - most);
            total += weight * one.y;
            sum += weight * x[(head * params.n_split + s) * (params.d / 4u) + column];
        }
    }
    return sum / total;
}
