/* near.c - see near.h. */
#include "near.h"

#include <math.h>
#include <string.h>

uint64_t near_element(const void *data, ir_type type, size_t at) {
    uint64_t bits = 0;
    const uint32_t bytes = type == IR_BOOL ? 1 : ir_type_bytes(type);
    memcpy(&bits, (const char *)data + at * bytes, bytes); /* little-endian, as every device here */
    return bits;
}

double near_smallest(ir_type type) {
    return type == IR_F16 ? 6.104e-5 : type == IR_F64 ? 2.3e-308 : 1.18e-38;
}

static double largest(ir_type type) {
    return type == IR_F16 ? 65504 : type == IR_F64 ? 1e300 : 3e38;
}

static double unit(ir_type type) { /* of the last place, relative */
    return type == IR_F16 ? 9.8e-4 : type == IR_BF16 ? 7.9e-3 : type == IR_F64 ? 2.3e-16 : 1.2e-7;
}

bool near_enough(ir_type type, ir_exact exact, uint64_t got, uint64_t want) {
    if (got == want) return true;
    if (!ir_type_in(type, IR_FLOATS)) return false;
    const double x = ir_to_double(type, got), y = ir_to_double(type, want);
    if (isnan(y)) return isnan(x);
    if (fabs(y) < near_smallest(type) && fabs(x) <= near_smallest(type) * 1.01)
        return true; /* subnormal ones may be zero */
    if (x == y) return exact != IR_EXACT || y == 0;
    if (exact == IR_EXACT) return false;
    if (fabs(y) > largest(type) * 0.999 && fabs(x) > largest(type) * 0.999 && x * y > 0)
        return true; /* on the edge of infinity */
    const double slack = exact == IR_NEAR ? 8 * unit(type) : 1e-3 + 2 * unit(type);
    return fabs(x - y) <= slack * fabs(y) + (exact == IR_LOOSE ? 1e-3 : 1e-35);
}

bool near_halves(device_language language, ir_op op, uint64_t got, uint64_t want,
                 const uint64_t in[3]) {
    for (uint32_t at = 0; at < 32; at += 16) {
        const uint64_t mine = got >> at & 0xffff, other = want >> at & 0xffff;
        const double a = ir_to_double(IR_F16, mine), b = ir_to_double(IR_F16, other);
        double of[3], size = fabs(b);
        for (uint32_t n = 0; n < 3; n++) of[n] = ir_to_double(IR_F16, in[n] >> at & 0xffff);
        if (op == IR_FMA_HALVES) size = fmax(fabs(of[0] * of[1]), fabs(of[2]));
        if (near_enough(IR_F16, IR_NEAR, mine, other)) continue;
        if (language == DEVICE_WGSL && !(fabs(b) < largest(IR_F16) * 0.999 && isfinite(size)))
            continue;
        if (!(fabs(a - b) <= 2 * unit(IR_F16) * size + near_smallest(IR_F16))) return false;
    }
    return true;
}
