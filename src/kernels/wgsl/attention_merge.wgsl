// attention_merge - joins the partial sums of attention over the pieces of the keys.
//   partial [rows, H, n_split, d] f32, stats [rows, H, n_split] (max, sum); out [n, H, d], rows from first_row on
// A workgroup has COLUMNS fours of one head's d; PARTS lanes share the pieces of each and are joined at the end. With
// PARTS = 1 (software devices) nothing is shared. A lane asks for EACH pieces before it works on them; in the place of one
// without keys it reads the first once more, since a choice of what to read costs less than a wait for whether to.
//! options
const D4: u32 = 16u;      // d / 4
const COLUMNS: u32 = 16u; // fours of d a workgroup, at most d / 4 rounded up
const PARTS: u32 = 16u;
const THREADS: u32 = 256u; // COLUMNS * PARTS
const EACH: u32 = 4u;
//! end

struct Params { n: u32, first_row: u32, rows: u32, n_head: u32, n_split: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

const LEAST: f32 = -3.0e38;
const BLOCKS: u32 = (D4 + COLUMNS - 1u) / COLUMNS;

var<workgroup> sums: array<vec4<f32>, THREADS>;
var<workgroup> part_stats: array<vec2<f32>, PARTS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = group.x + group.y * groups.x;
    let head = index / BLOCKS; // of all rows
    let column = index % BLOCKS * COLUMNS + lane % COLUMNS;
    let part = lane / COLUMNS;
    let row = params.first_row + head / params.n_head;
    let inside = column < D4 && row < params.n && head / params.n_head < params.rows;
    var most = LEAST;
    var total = 0.0;
    var sum = vec4<f32>(0.0);
    let first = head * params.n_split;
    for (var begin = part; begin < select(0u, params.n_split, inside); begin += EACH * PARTS) {
        var ones: array<vec2<f32>, EACH>;
        var values: array<vec4<f32>, EACH>;
        for (var i = 0u; i < EACH; i++) {
            ones[i] = stats[first + min(begin + i * PARTS, params.n_split - 1u)];
        }
        var now = most;
        for (var i = 0u; i < EACH; i++) {
            let has = begin + i * PARTS < params.n_split && ones[i].y > 0.0; // else a piece without keys
            values[i] = partial[(first + select(0u, begin + i * PARTS, has)) * D4 + column];
            ones[i] = select(vec2<f32>(LEAST, 0.0), ones[i], has);
            now = max(now, ones[i].x);
        }
        let keep = exp(most - now);
        total *= keep;
        sum *= keep;
        for (var i = 0u; i < EACH; i++) {
            let add = exp(ones[i].x - now);
            total += ones[i].y * add;
            sum += select(vec4<f32>(0.0), values[i] * add, ones[i].y > 0.0);
        }
        most = now;
    }
    if (PARTS > 1u) {
        sums[lane] = sum;
        if (lane % COLUMNS == 0u) {
            part_stats[part] = vec2<f32>(most, total);
        }
        workgroupBarrier();
        if (part == 0u) {
            for (var i = 1u; i < PARTS; i++) {
                let one = part_stats[i];
                let now = max(most, one.x);
                let keep = exp(most - now);
                let add = exp(one.x - now);
                most = now;
                total = total * keep + one.y * add;
                sum = sum * keep + sums[i * COLUMNS + lane] * add;
            }
        }
    }
    if (inside && part == 0u) {
        out[(params.first_row * params.n_head + head) * D4 + column] = sum / max(total, 1e-30); // 0 without keys
    }
}
