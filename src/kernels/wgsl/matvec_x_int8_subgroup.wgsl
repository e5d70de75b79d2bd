// Vectors rounded to int8 in blocks of 32 and kept: in workgroup memory, or where part keep says. 8 neighbouring invocations
// share a block and find its largest value and sums by shuffles. k is a multiple of 32, the subgroup's size at least 8.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, a multiple of 4
//! end
const X_EACH: u32 = (X_GROUPS * 4u + WG - 1u) / WG;

fn x_own(e: u32, local: u32) -> u32 { // the e-th four that an invocation works at
    return e * WG + local;
}

//! part prologue
//! include matvec_prologue_plain
//! end

fn x_fill(local: u32) {
    prologue_begin(local);
    let n_four = params.k / 4u;
    for (var n = 0u; n < N_X; n++) {
        for (var e = 0u; e < X_EACH; e++) { // all invocations go round: shuffles need them
            let i = x_own(e, local);
            let v = prologue_own(n, e, min(i, n_four - 1u));
            var largest = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
            largest = max(largest, subgroupShuffleXor(largest, 1u));
            largest = max(largest, subgroupShuffleXor(largest, 2u));
            largest = max(largest, subgroupShuffleXor(largest, 4u));
            let factor = select(0.0, 127.0 / largest, largest > 1e-30); // smaller ones would overflow
            let q = pack4xI8(vec4<i32>(round(v * factor)));
            let q1 = subgroupShuffleXor(q, 1u);
            let q2 = subgroupShuffleXor(q, 2u);
            let q3 = subgroupShuffleXor(q1, 2u);
            let one = 0x01010101u;
            let sum = dot4I8Packed(q, one) + dot4I8Packed(q1, one) + dot4I8Packed(q2, one) + dot4I8Packed(q3, one);
            let other = subgroupShuffleXor(sum, 4u);
            if (i < n_four && local % 4u == 0u) {
                x_keep(n, i / 4u, vec4<u32>(q, q1, q2, q3));
                if (local % 8u == 0u) {
                    x_keep_block(n, i / 8u, vec2<u32>(bitcast<u32>(largest / 127.0), bitcast<u32>((sum & 0xffff) | (other << 16u))));
                }
            }
        }
    }
    workgroupBarrier();
}

//! part keep
//! include matvec_x_int8_read
//! end
