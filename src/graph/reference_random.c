/* reference_random.c - random numbers as they are meant: see base_random_kind. */
#include "base/thread.h"
#include "graph/reference.h"

#include <math.h>
#include <string.h>

/* In (0, 1). */
static double inner(uint32_t word) {
    return (double)(word >> 8 | 1) * 0x1p-24;
}

static reference_number number_of(const graph_attrs *attr, const uint32_t word[2]) {
    static const double turn = 6.28318530717958647693;
    const double unit = (double)(word[0] >> 8) * 0x1p-24;
    reference_number x = {0};
    switch ((base_random_kind)attr->random.kind) {
    case RANDOM_BITS: x.whole = word[0]; break;
    case RANDOM_BITS_HIGH: x.whole = word[1]; break;
    case RANDOM_TRUE: x.whole = unit < (double)attr->random.chance; break;
    case RANDOM_NORMAL:
        x.real = sqrt(-2 * log(inner(word[0]))) * cos(turn * (double)(word[1] >> 8) * 0x1p-24);
        break;
    case RANDOM_GUMBEL: x.real = -log(-log(inner(word[0]))); break;
    case RANDOM_UNIFORM: {
        const uint32_t bits = base_random_bits((base_type)attr->random.type);
        x.real = ldexp((double)(word[0] >> (32 - bits)), -(int)bits);
        break;
    }
    }
    return x;
}

beryl_status reference_random(reference_call *c) {
    const reference_tensor *low = &c->in[0], *high = &c->in[1], *out = &c->out[0];
    const graph_tensor *t = out->t;
    const size_t size = base_type_block_bytes(t->type);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= out->dim[i];
    for (uint64_t i = 0; i < n; i++) {
        uint32_t key[2], word[2], place = 0, stride = 1;
        uint64_t left = i;
        for (uint32_t k = t->rank; k-- > 0; left /= out->dim[k], stride *= t->dim[k].size)
            place += (uint32_t)(left % out->dim[k]) * stride;
        memcpy(&key[0], (uint32_t *)low->data + reference_offset(low, out, i), sizeof *key);
        memcpy(&key[1], (uint32_t *)high->data + reference_offset(high, out, i), sizeof *key);
        base_threefry(key, (const uint32_t[2]){place, c->node->attr.random.stream}, word);
        reference_put(t->type, (char *)out->data + (uint64_t)reference_offset(out, out, i) * size,
                      number_of(&c->node->attr, word));
    }
    return BERYL_OK;
}
