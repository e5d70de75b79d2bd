/* ir_ops.c - prints docs/ir-ops.md from the kernel IR's table of ops; called by tools/docs. */
#include "ir/ir.h"

#include <stdio.h>

static const char *types_text(uint32_t types) {
    switch (types) {
    case 0: return "–";
    case IR_ANY: return "any";
    case IR_NUMBERS: return "numbers";
    case IR_INTEGERS: return "integers";
    case IR_FLOATS: return "floats";
    case IR_INTEGERS | IR_BOOLS: return "integers, bool";
    case IR_WORDS: return "f32 i32 u32";
    case IR_I32S: return "i32";
    case IR_U32S: return "u32";
    case IR_I32S | IR_U32S: return "i32 u32";
    default: return "?";
    }
}

static void row(const ir_op_info *op) {
    static const char *const exact[] = {"exact", "near", "loose"};
    printf("| `%s` | %u | %s | %s |%s%s%s%s | %s |\n", op->name, op->n_in, types_text(op->types),
           exact[op->exact], op->flags & IR_PURE ? " pure" : "",
           op->flags & IR_READS && !(op->flags & IR_BARS) ? " reads" : "",
           op->flags & IR_WRITES && !(op->flags & IR_BARS) ? " writes" : "",
           op->flags & IR_TOGETHER ? " together" : "", op->meaning);
}

static void text_cell(const char *text) {
    fputs(text ? " `" : "", stdout);
    /* `|` would end the cell */
    for (const char *c = text ? text : ""; *c; c++) printf(*c == '|' ? "\\%c" : "%c", *c);
    fputs(text ? "` |" : " |", stdout);
}

static void text_row(const ir_op_info *op) {
    if (!op->text.any) return;
    printf("| `%s` |", op->name);
    text_cell(op->text.any);
    text_cell(op->text.f);
    text_cell(op->text.s);
    text_cell(op->text.b);
    text_cell(op->text.wide);
    printf("%s%s |\n", op->text.narrow ? " " : "",
           op->text.narrow ? types_text(op->text.narrow) : "");
}

#define X(NAME, ...) row(ir_op_of(IR_##NAME));
#define TABLE(title, LIST)                                                                \
    printf("\n## %s\n\n| op | operands | types | against the interpreter | is | what |\n" \
           "| --- | ---: | --- | --- | --- | --- |\n",                                    \
           title);                                                                        \
    LIST(X)

int main(void) {
    printf(
        "# Ops of the kernel IR\n\n"
        "Made from `src/ir/ir_ops.h` by `make docs`. What a kernel is: [ir.md](ir.md).\n\n"
        "*Types*: of the result; of comparisons, of the operands. *Against the interpreter*: how "
        "generated "
        "code may differ (exact: not at all, bits of NaN and subnormals aside; near: a few units "
        "in the last place; loose: as the language's own function). *Together*: the whole "
        "workgroup must reach it.\n");
    TABLE("Values", IR_VALUE_LIST)
    TABLE("Index kinds", IR_INDEX_LIST)
    TABLE("One operand", IR_UNARY_LIST)
    TABLE("Two operands", IR_BINARY_LIST)
    TABLE("Comparisons", IR_COMPARE_LIST)
    TABLE("Vector lanes", IR_LANES_LIST)
    TABLE("Memory", IR_MEMORY_LIST)
    TABLE("Subgroups", IR_SUBGROUP_LIST)
    TABLE("Matrices and asynchronous copies", IR_MATRIX_LIST)
    TABLE("Control", IR_CONTROL_LIST)
    printf("\n## Texts\n\n"
           "What generated code says, in WGSL's syntax, from which the other languages are "
           "translated. `$0` `$1` `$2`: the operands; `$t`: the type that holds "
           "them in registers; `$s`, `$u`: the signed and the unsigned integer of that size; `$m`: "
           "the bits of the type less one; `@name`: a function of "
           "math.h. An empty cell: as the first. *Fitted*: the types to which the result is "
           "rounded or cut afterwards.\n\n"
           "| op | any type | floats | signed | bool | 64-bit integers in WGSL | fitted |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int op = 0; op < IR_OP_COUNT; op++) text_row(ir_op_of((ir_op)op));
    return 0;
}
