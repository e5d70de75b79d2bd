// Vectors from the pieces of attention_decode: x partial [n_x, H, n_split, d], stats [n_x, H, n_split] (max, sum);
// k = H * d. d a multiple of 4.
//! param n_split: u32
//! param d: u32
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;

//! options
const MERGE_ALL: bool = false; // read pieces that may have no keys too, since they are few: then no load waits for another
//! end
const MERGE_EACH: u32 = 4u; // pieces that a lane asks for before it works on them

fn prologue_begin(local: u32) {
}

fn prologue_at(n: u32, i: u32) -> vec4<f32> { // elements 4i to 4i + 3, all of one head
    let head = x_row(n) * (params.k / params.d) + i * 4u / params.d;
    let column = i % (params.d / 4u);
    let first = head * params.n_split;
    var most = -3.0e38;
    var total = 0.0;
    var sum = vec4<f32>(0.0);
    for (var begin = 0u; begin < params.n_split; begin += MERGE_EACH) {
        var ones: array<vec2<f32>, MERGE_EACH>;
        var values: array<vec4<f32>, MERGE_EACH>;
        for (var s = 0u; s < MERGE_EACH; s++) {
            ones[s] = stats[first + min(begin + s, params.n_split - 1u)];
        }
        var now = most;
        for (var s = 0u; s < MERGE_EACH; s++) {
            let is = begin + s < params.n_split;
            let has = is && ones[s].y > 0.0; // else a piece without keys: the first is read once more
            values[s] = x[(first + select(0u, begin + s, select(has, is, MERGE_ALL))) * (params.d / 4u) + column];
            ones[s] = select(vec2<f32>(-3.0e38, 0.0), ones[s], has);
            now = max(now, ones[s].x);
        }
        let keep = exp(most - now);
        total *= keep;
        sum *= keep;
        for (var s = 0u; s < MERGE_EACH; s++) {
            let weight = exp(ones[s].x - now);
            total += ones[s].y * weight;
            sum += select(vec4<f32>(0.0), values[s] * weight, ones[s].y > 0.0);
        }
        most = now;
    }
    return sum / max(total, 1e-30); // 0 without keys
}

fn prologue_own(n: u32, e: u32, i: u32) -> vec4<f32> { // four i = x_own(e, local) of vector n
    return prologue_at(n, i);
}
