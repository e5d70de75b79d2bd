// Vectors rounded to int8 in blocks of 32 and kept: in workgroup memory, or where part keep says. 8 neighbouring invocations
// share a block and find its largest value and sums by shuffles. k is a multiple of 32, the subgroup's size at least 8.
//! options
const X_GROUPS: u32 = 64u; // of 16 elements, of one vector: at least k / 16, a multiple of 4
//! end
const X_EACH: u32 = (X_GROUPS * 4u + WG - 1u) / WG;

//! include matvec_round

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
            let rounded = round_four(v);
            let q1 = subgroupShuffleXor(rounded.quants, 1u);
            let q2 = subgroupShuffleXor(rounded.quants, 2u);
            let q3 = subgroupShuffleXor(q1, 2u);
            if (i < n_four && local % 4u == 0u) {
                x_keep(n, i / 4u, vec4<u32>(rounded.quants, q1, q2, q3));
                if (local % 8u == 0u) {
                    x_keep_block(n, i / 8u, vec2<u32>(bitcast<u32>(rounded.scale), rounded.sums));
                }
            }
        }
    }
    workgroupBarrier();
}

//! part keep
//! include matvec_x_int8_read
//! end
