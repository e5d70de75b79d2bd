// router - which experts each vector goes to, and how much of each: ids, the k largest logits in falling order (ties:
// lower index, NaN last), and gates = softmax(factor * those) * scales[id].
//   x [n, d] f32, rows at x0; scales [d]; ids [n, k] i32; gates [n, k] f32. k at most 16, d at most 4 * FOURS
// One workgroup a row. An expert's place is the number of those before it, so all find theirs at the same time.
//! options
const WG: u32 = 128u;
const FOURS: u32 = 32u;
//! end
const CHOSEN: u32 = 16u;

struct Params { n: u32, d: u32, k: u32, x_offset: u32, x0: u32, scales_offset: u32, factor: f32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<i32>;
@group(0) @binding(3) var<storage, read_write> gates: array<f32>;

var<workgroup> keys: array<vec4<u32>, FOURS>;
var<workgroup> chosen: array<u32, CHOSEN>;
var<workgroup> logits: array<f32, CHOSEN>;

// Rises with the value; both zeros alike; NaN 1; 0: there is no such expert.
fn key_of(source: u32, i: u32) -> u32 {
    if (i >= params.d) {
        return 0u;
    }
    let bits = bitcast<u32>(x[source + i]);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 1u;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

fn count(before: vec4<bool>) -> u32 {
    let c = select(vec4<u32>(0u), vec4<u32>(1u), before);
    return c.x + c.y + c.z + c.w;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let row = group.x + group.y * groups.x;
    let source = params.x_offset + min(row, params.n - 1u) * params.x0;
    for (var f = local; f < FOURS; f += WG) {
        let i = f * 4u;
        keys[f] = vec4<u32>(key_of(source, i), key_of(source, i + 1u), key_of(source, i + 2u), key_of(source, i + 3u));
    }
    workgroupBarrier();
    for (var i = local; i < params.d; i += WG) {
        let key = keys[i / 4u][i % 4u];
        var place = 0u;
        for (var f = 0u; f < FOURS; f++) {
            // Those with a lower index come first where keys are equal.
            let lower = vec4<u32>(f * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(i);
            place += count((keys[f] > vec4<u32>(key)) | ((keys[f] == vec4<u32>(key)) & lower));
        }
        if (place < params.k) {
            chosen[place] = i;
            logits[place] = params.factor * x[source + i];
        }
    }
    workgroupBarrier();
    if (local < params.k && row < params.n) {
        var most = logits[0];
        for (var i = 1u; i < params.k; i++) {
            most = max(most, logits[i]);
        }
        var sum = 0.0;
        for (var i = 0u; i < params.k; i++) {
            sum += exp(logits[i] - most);
        }
        let id = chosen[local];
        ids[row * params.k + local] = i32(id);
        gates[row * params.k + local] = exp(logits[local] - most) / sum * scales[params.scales_offset + id];
    }
}
