/* ops.c - see ops.h. */
#include "base/ops.h"
#include "base/build.h"

const base_op_info base_ops[OP_COUNT] = {
#define X(NAME, id, kind, least, most, in, letters, out, attrs, names, values, call, is, close, \
          about)                                                                                \
    [OP_##NAME] = {.name = #id,                                                                 \
                   .group = kind,                                                               \
                   .what = BUILD_IS_MODULE ? "" : about,                                        \
                   .inputs = letters,                                                           \
                   .attributes = OP_LETTERS_##attrs,                                            \
                   .n_in_min = least,                                                           \
                   .n_in_max = most,                                                            \
                   .n_out = out,                                                                \
                   .facts = is,                                                                 \
                   .closeness = close,                                                          \
                   .usual = {OP_LIST values}},
    BASE_OP_LIST(X)
#undef X
};

const base_view_info base_views[VIEW_COUNT] = {
#define X(NAME, id, letters, about) \
    [VIEW_##NAME] = {.name = #id, .takes = letters, .what = BUILD_IS_MODULE ? "" : about},
    BASE_VIEW_LIST(X)
#undef X
};

uint32_t base_random_bits(base_type type) {
    return type == TYPE_F32 ? 24 : type == TYPE_F16 ? 11 : type == TYPE_BF16 ? 8 : 0;
}
