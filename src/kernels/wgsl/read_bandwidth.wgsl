// read_bandwidth - reads all of `data` `rounds` times and keeps one word a thread, to see how fast memory delivers.
//   data [tiles * 1024] vec4<u32>; out [groups * 256] u32
// A group takes a tile of 16 KiB at a time, a thread four of its 16-byte words, whose loads do not wait for each other. The
// sum goes out so that no load can be left away; its value means nothing.
struct Params { tiles: u32, rounds: u32 }
@group(1) @binding(0) var<uniform> params: Params;
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    var sum = vec4<u32>(0u);
    for (var round = 0u; round < params.rounds; round++) {
        for (var tile = group.x; tile < params.tiles; tile += groups.x) {
            let at = tile * 1024u + lane;
            let a = data[at];
            let b = data[at + 256u];
            let c = data[at + 512u];
            let d = data[at + 768u];
            sum = (sum ^ a) + b * 3u + (c ^ d);
        }
    }
    out[group.x * 256u + lane] = sum.x + sum.y + sum.z + sum.w;
}
