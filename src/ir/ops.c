/* ops.c - the lists of ir_ops.h as tables. */
#include "ir/ir.h"
#include "base/build.h"

const ir_op_info *ir_op_of(ir_op op) {
    static const ir_op_info ops[IR_OP_COUNT] = {
#define TEXT(...) {.any = __VA_ARGS__}
#define NO_TEXT \
    { 0 }
#define X(NAME, name, form, n_in, types, flags, exact, meaning, text, value) \
    {#name, IR_FORM_##form, n_in, types, flags, IR_##exact, BUILD_IS_MODULE ? "" : meaning, text},
        IR_OP_LIST(X)
#undef X
    };
    return &ops[op];
}

const char *ir_type_name(ir_type type) {
    static const char *const names[IR_TYPE_COUNT] = {
#define X(NAME, name, bytes) #name,
        IR_TYPE_LIST(X)
#undef X
    };
    return names[type];
}

uint32_t ir_type_bytes(ir_type type) {
    static const uint8_t sizes[IR_TYPE_COUNT] = {
#define X(NAME, name, bytes) bytes,
        IR_TYPE_LIST(X)
#undef X
    };
    return sizes[type];
}
