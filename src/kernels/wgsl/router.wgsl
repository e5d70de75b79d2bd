// router - which experts each vector goes to, and how much of each: ids, the k largest logits in falling order, and gates =
// softmax(factor * those) * scales[id]. One workgroup a row.
//   logits [n, d] f32, rows at x0; scales [d]; ids [n, k] i32; gates [n, k] f32
//! options
const WG: u32 = 128u;
//! end

struct Params { n: u32, d: u32, k: u32, x_offset: u32, x0: u32, scales_offset: u32, factor: f32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<i32>;
@group(0) @binding(3) var<storage, read_write> gates: array<f32>;

//! include experts_choose

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let row = group.x + group.y * groups.x;
    choose(params.x_offset + min(row, params.n - 1u) * params.x0, params.d, params.k, params.factor, local);
    if (local < params.k && row < params.n) {
        ids[row * params.k + local] = i32(chosen[local]);
        gates[row * params.k + local] = chosen_gate(local, params.k, params.scales_offset);
    }
}
