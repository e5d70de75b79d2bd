// The choice of experts for one vector by a workgroup: the k largest of d logits in falling order (ties: lower index, NaN
// last), k at most CHOSEN, d at most 4 * FOURS. An expert's place is the number of those before it, so all find theirs at
// the same time. The kernel declares `logits: array<f32>` and `scales: array<f32>` [d].
//! options
const FOURS: u32 = 32u;
//! end
const CHOSEN: u32 = 16u;

var<workgroup> choose_keys: array<vec4<u32>, FOURS>;
var<workgroup> chosen: array<u32, CHOSEN>;
var<workgroup> chosen_logits: array<f32, CHOSEN>;

// Rises with the value; both zeros alike; NaN 1; 0: there is no such expert.
fn choose_key(first: u32, i: u32, d: u32) -> u32 {
    let bits = bitcast<u32>(logits[first + min(i, d - 1u)]);
    let magnitude = bits & 0x7fffffffu;
    let key = select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
    return select(select(key, 1u, magnitude > 0x7f800000u), 0u, i >= d);
}

// Lays the chosen ones and their logits, times `factor`, into workgroup memory. The row of logits begins at `first`.
fn choose(first: u32, d: u32, k: u32, factor: f32, local: u32) {
    for (var f = local; f < FOURS; f += WG) {
        let i = f * 4u;
        choose_keys[f] = vec4<u32>(choose_key(first, i, d), choose_key(first, i + 1u, d), choose_key(first, i + 2u, d),
            choose_key(first, i + 3u, d));
    }
    workgroupBarrier();
    for (var i = local; i < d; i += WG) {
        let own = choose_keys[i / 4u];
        let key = own[i % 4u];
        // Those with a lower index come first where keys are equal: no key of one that there is, is 0.
        let lower = vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(i % 4u);
        var before = select(vec4<u32>(0u), vec4<u32>(1u), lower & (own == vec4<u32>(key)));
        for (var f = 0u; f < (d + 3u) / 4u; f++) {
            before += select(vec4<u32>(0u), vec4<u32>(1u), choose_keys[f] > vec4<u32>(select(key, key - 1u, f < i / 4u)));
        }
        let place = before.x + before.y + before.z + before.w;
        if (place < k) {
            chosen[place] = i;
            chosen_logits[place] = factor * logits[first + i];
        }
    }
    workgroupBarrier();
}

// softmax over the k chosen logits, times the expert's scale, of the one at `place`.
fn chosen_gate(place: u32, k: u32, scales_offset: u32) -> f32 {
    var most = chosen_logits[0];
    for (var i = 1u; i < k; i++) {
        most = max(most, chosen_logits[i]);
    }
    var sum = 0.0;
    for (var i = 0u; i < k; i++) {
        sum += exp(chosen_logits[i] - most);
    }
    return exp(chosen_logits[place] - most) / sum * scales[scales_offset + chosen[place]];
}
