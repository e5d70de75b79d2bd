// The vectors of a prologue that works, in registers: every invocation has its own fours of each, as part x deals them out.
var<private> held: array<vec4<f32>, N_X * X_EACH>;

fn prologue_own(n: u32, e: u32, i: u32) -> vec4<f32> { // four i = x_own(e, local) of vector n
    return held[n * X_EACH + e];
}
