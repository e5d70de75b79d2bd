/* c.c - plain C for gcc and clang: a workgroup is a loop over its lanes.
 *
 * The lanes' loop stands inside the kernel's own loops wherever these are the same for the whole
 * workgroup, so it is cut there, at barriers and at subgroup ops: what stands between two cuts is a
 * segment, and a compiler makes vectors of its lanes. What is the same in the workgroup is computed
 * once, outside; sums of lane numbers and such are computed again in every segment, so that the
 * compiler sees which addresses are neighbours; all else that lives across a cut lies in an array
 * with an element for each lane (s12 for v12), as register arrays do ([element, lane]).
 *
 * A condition, or the beginning of a loop, that is such a sum does not end the cutting either: its
 * block is masked, every segment in it asks again. Only blocks that depend on data run lane by lane
 * as a whole. */
#include "codegen/c_fragment.h"
#include "codegen/c_vector.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef enum kind {
    LANE,  /* in a segment */
    GROUP, /* once for the workgroup */
    AGAIN, /* in every segment that wants it */
    CROSS  /* lanes look at each other */
} kind;
typedef enum mode { WHOLE, MASKED, LANES } mode; /* of a block */

typedef struct mask {
    ir_id id;            /* the loop or if */
    bool is_loop, other; /* other: its else */
    const char *turn;    /* of a loop: how far it is */
} mask;

typedef struct own {
    uint8_t *kinds, *modes; // [n_code]; modes: of the block that an instruction opens
    bool *kept;             // [n_code] lives across a cut
    uint32_t *segment;      // [n_code]
    uint32_t *next;         // [n_code] ir_blocks
    bool *inner;            // [n_code] inside a block of mode LANES
    uint32_t *stamp;        // [n_code] the segment that has it already
    ir_id *list, *stack;    // [n_code], [4 * n_code]
    bool group_array[IR_ARRAY_MAX];
    ir_id segment_from; /* not yet written: first instruction, IR_NO_ID: none */
    uint32_t flushed;
    mask masks[IR_DEPTH_MAX];
    uint32_t n_mask;
    uint32_t stack_bytes, scratch_bytes;
    base_text arrays; /* their declarations */
} own;

enum { STACK_MAX = 64 * 1024 }; /* of arrays; the rest lies in scratch */

static const char types[] =
    "#include <math.h>\n#include <stdint.h>\n"
    "typedef int8_t i8;\ntypedef int16_t i16;\ntypedef int32_t i32;\ntypedef int64_t i64;\n"
    "typedef uint8_t u8;\ntypedef uint16_t u16;\ntypedef uint32_t u32;\ntypedef uint64_t u64;\n"
    "typedef float f32;\ntypedef double f64;\n"
    "#define bool _Bool\n#define true 1\n#define false 0\n"
    "#define FN static inline __attribute__((always_inline, unused))\n"
    "#define pick(f, t, c) ((c) ? (t) : (f))\n"
    "#define ALIGNED __attribute__((aligned(64), unused))\n"
    "#define ONCE __attribute__((unused)) const\n"
    "#ifdef __clang__\n#define EACH_LANE _Pragma(\"clang loop vectorize(assume_safety)\")\n"
    "#define EACH_ELEMENT EACH_LANE\n"
    "#else\n#define EACH_LANE _Pragma(\"GCC ivdep\")\n"
    "#define EACH_ELEMENT _Pragma(\"GCC unroll 1\")\n#endif\n"
    "#if defined(__FLT16_MANT_DIG__) && !(defined(__clang__) && __clang_major__ < 15)\n#define "
    "HAS_HALF 1\n#endif\n";

static own *own_of(codegen *g) {
    return g->own;
}

/* ---- what is what ---------------------------------------------------------------------------- */

static bool all_are(const codegen *g, const own *o, const ir_instruction *i, bool again) {
    (void)g;
    for (uint32_t n = 0; n < i->n_in; n++)
        if (o->kinds[i->in[n]] != GROUP && !(again && o->kinds[i->in[n]] == AGAIN)) return false;
    return true;
}

static bool is_cheap(const ir_instruction *i) {
    const ir_op op = (ir_op)i->op;
    if (op == IR_DIV || op == IR_MOD || op == IR_BITCAST) return false;
    return !ir_type_in((ir_type)i->type, IR_FLOATS);
}

static kind kind_of(const codegen *g, const own *o, ir_id id, const bool *uniform, mode now) {
    const ir_instruction *i = &g->k->code[id];
    const ir_op op = (ir_op)i->op;
    const uint32_t flags = ir_op_of(op)->flags;
    if (op == IR_UNIFORM_LOAD || op == IR_COPY_COMMIT || op == IR_COPY_WAIT ||
        op == IR_FRAGMENT_WAIT)
        return GROUP;
    if ((flags & IR_TOGETHER) && op != IR_BARRIER) return CROSS;
    if (now == LANES) return LANE;
    if ((flags & IR_PURE) && op != IR_LOCAL && op != IR_SUBGROUP_LANE) {
        if (all_are(g, o, i, false)) return GROUP;
        return is_cheap(i) && all_are(g, o, i, true) ? AGAIN : LANE;
    }
    if (op == IR_LOCAL && g->k->workgroup[i->imm] == 1) return GROUP;
    if (op == IR_LOCAL || op == IR_SUBGROUP_LANE) return AGAIN;
    if (now == WHOLE && op == IR_LOAD && uniform[id]) return GROUP;
    if (op == IR_STORE && i->space == IR_REGISTER && o->group_array[i->array]) return GROUP;
    return LANE;
}

/* The mode of the block that a loop or if opens. */
static mode mode_of(const codegen *g, const own *o, ir_id id, mode now) {
    const ir_instruction *i = &g->k->code[id];
    if (now == LANES || all_are(g, o, i, false)) return now;
    if (i->op == IR_LOOP)
        return o->kinds[i->in[0]] == AGAIN && o->kinds[i->in[1]] == GROUP &&
                       o->kinds[i->in[2]] == GROUP
                   ? MASKED
                   : LANES;
    if (o->kinds[i->in[0]] != AGAIN) return LANES;
    for (ir_id at = id; at < g->k->n_code && g->k->code[at].op != IR_END; at++)
        if (g->k->code[at].op == IR_LOOP) return MASKED;
    return LANES;
}

static void classify(codegen *g, own *o, const bool *uniform) {
    mode stack[IR_DEPTH_MAX + 1] = {WHOLE};
    uint32_t depth = 0, segment = 1;
    for (ir_id id = 0; id < g->k->n_code; id++) {
        const ir_instruction *i = &g->k->code[id];
        const ir_op op = (ir_op)i->op;
        const mode now = stack[depth];
        o->inner[id] = now == LANES;
        if (op == IR_LOOP || op == IR_IF) {
            const mode inside = mode_of(g, o, id, now);
            o->modes[id] = (uint8_t)inside;
            o->kinds[id] = inside == LANES ? LANE : all_are(g, o, i, false) ? GROUP : AGAIN;
            if (inside != LANES) segment++;
            o->segment[id] = segment;
            stack[++depth] = inside;
            continue;
        }
        if (op == IR_ELSE || op == IR_END) {
            o->kinds[id] = LANE;
            o->modes[id] = (uint8_t)now;
            if (now != LANES) segment++;
            o->segment[id] = segment;
            o->inner[id] = op == IR_END && now == LANES;
            depth -= op == IR_END;
            continue;
        }
        const kind is = kind_of(g, o, id, uniform, now);
        o->kinds[id] = (uint8_t)is;
        const bool meets = is == CROSS || op == IR_BARRIER || op == IR_UNIFORM_LOAD;
        const bool cuts =
            meets ||
            (is == GROUP && op == IR_STORE); /* what lanes read before it they read before it */
        if (meets && now == LANES)
            codegen_fail(g, id, "it stands in a block that depends on the lane");
        segment += cuts;
        o->segment[id] = segment;
        segment += cuts;
    }
}

/* Register arrays that need one copy for the whole workgroup: only stored to by it as a whole. */
static void find_group_arrays(codegen *g, own *o, const bool *uniform) {
    for (uint32_t n = 0; n < g->k->n_register; n++) o->group_array[n] = true;
    uint32_t apart = 0; /* depth of blocks inside one that is not the same for all */
    for (ir_id id = 0; id < g->k->n_code; id++) {
        const ir_instruction *i = &g->k->code[id];
        if (i->op == IR_LOOP || i->op == IR_IF) apart += apart || !uniform[id];
        else if (i->op == IR_END) apart -= apart > 0;
        else if (i->op == IR_STORE && i->space == IR_REGISTER &&
                 (apart || !uniform[i->in[0]] || !uniform[i->in[1]]))
            o->group_array[i->array] = false;
    }
}

/* Which values of lanes are wanted in another segment than their own. */
static void find_kept(codegen *g, own *o) {
    for (ir_id id = 0; id < g->k->n_code; id++) {
        const ir_instruction *i = &g->k->code[id];
        for (uint32_t n = 0; n < i->n_in; n++) {
            const ir_id from = i->in[n];
            if (o->kinds[from] == LANE && o->segment[from] != o->segment[id]) o->kept[from] = true;
            const bool group_wants =
                o->kinds[id] == GROUP &&
                (o->kinds[from] == LANE || o->kinds[from] == AGAIN || o->kinds[from] == CROSS);
            if (group_wants)
                codegen_fail(g, id, "an operand is not seen to be the same in the workgroup");
        }
        if (o->kinds[id] == CROSS && ir_has_result(i)) o->kept[id] = true;
    }
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void array(codegen *g, const char *type, uint32_t bytes, const char *name, uint64_t count) {
    own *o = own_of(g);
    const uint64_t size = (count * bytes + 63) / 64 * 64;
    if (size > UINT32_MAX / 4) {
        codegen_refuse(g, "an array of %llu bytes is too large", (unsigned long long)size);
    } else if (o->stack_bytes + size <= STACK_MAX) {
        o->stack_bytes += (uint32_t)size;
        base_text_print(&o->arrays, "    ALIGNED %s %s[%u];\n", type, name, (unsigned)count);
    } else {
        base_text_print(&o->arrays,
                        "    ALIGNED %s *restrict const %s = (%s *)((char *)scratch + %u);\n", type,
                        name, type, (unsigned)o->scratch_bytes);
        o->scratch_bytes += (uint32_t)size;
        if (o->scratch_bytes > UINT32_MAX / 4) codegen_refuse(g, "its arrays are too large");
    }
}

static const char *kept_name(codegen *g, ir_id id, uint32_t lane) {
    return g->k->code[id].width == 1 ? codegen_print(g, "s%u", (unsigned)id)
                                     : codegen_print(g, "s%u_%u", (unsigned)id, (unsigned)lane);
}

static uint32_t carrier_bytes(ir_type type) {
    return type == IR_BOOL ? 1 : ir_type_bytes(codegen_carrier(type));
}

/* Operands of a fragment op that lanes compute, for all lanes: x12_0 for the first of v12. */
static const char *gathered(codegen *g, ir_id id, uint32_t n) {
    return codegen_print(g, "x%u_%u", (unsigned)id, (unsigned)n);
}

static void declare_arrays(codegen *g) {
    const ir_kernel *k = g->k;
    own *o = own_of(g);
    const uint32_t lanes = ir_lanes(k);
    for (uint32_t n = 0; n < k->n_register; n++)
        array(g, codegen_type(k->registers[n].type), carrier_bytes(k->registers[n].type),
              codegen_print(g, "r%u", n),
              (uint64_t)k->registers[n].count * (o->group_array[n] ? 1 : lanes));
    for (ir_id id = 0; id < k->n_code; id++)
        for (uint32_t lane = 0; o->kept[id] && lane < k->code[id].width; lane++)
            array(g, codegen_type((ir_type)k->code[id].type),
                  carrier_bytes((ir_type)k->code[id].type), kept_name(g, id, lane), lanes);
    for (ir_id id = 0; id < k->n_code; id++)
        for (uint32_t n = 0; codegen_c_is_fragment(&k->code[id]) && n < k->code[id].n_in; n++) {
            const ir_id from = k->code[id].in[n];
            const ir_type type = (ir_type)k->code[from].type;
            if (o->kinds[from] != GROUP)
                array(g, codegen_type(type), carrier_bytes(type), gathered(g, id, n), lanes);
        }
    for (uint32_t n = 0; n < k->n_fragment; n++)
        array(g, codegen_type(k->fragments[n].type), carrier_bytes(k->fragments[n].type),
              codegen_print(g, "f%u", n), codegen_c_fragment_count(g, n));
    for (uint32_t n = 0; n < k->n_workgroup; n++)
        array(g, codegen_c_memory_type(k->workgroups[n].type), ir_type_bytes(k->workgroups[n].type),
              codegen_print(g, "w%u", n), k->workgroups[n].count);
}

static void place(codegen *g, base_text *text, ir_space space, uint32_t array, const char *index,
                  uint32_t more) {
    const char *at = codegen_index(g, index, more);
    const unsigned lanes = (unsigned)ir_lanes(g->k);
    if (space == IR_BUFFER) base_text_print(text, "b%u[%s]", (unsigned)array, at);
    else if (space == IR_WORKGROUP) base_text_print(text, "w%u[%s]", (unsigned)array, at);
    else if (own_of(g)->group_array[array]) base_text_print(text, "r%u[%s]", (unsigned)array, at);
    else if (g->k->registers[array].count == 1) base_text_print(text, "r%u[lane]", (unsigned)array);
    else base_text_print(text, "r%u[(%s) * %uu + lane]", (unsigned)array, at, lanes);
}

/* ---- segments -------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b) {
    const ir_id x = *(const ir_id *)a, y = *(const ir_id *)b;
    return (x > y) - (x < y);
}

/* Puts on o->list what must be there before the instructions of a segment: AGAIN values and kept
 * ones. */
static uint32_t require(codegen *g, own *o, uint32_t stamp, ir_id from, uint32_t n_list) {
    uint32_t depth = 0;
    const ir_instruction *i = &g->k->code[from];
    for (uint32_t n = 0; n < i->n_in; n++) o->stack[depth++] = i->in[n];
    while (depth) {
        const ir_id id = o->stack[--depth];
        const ir_instruction *j = &g->k->code[id];
        const bool again = o->kinds[id] == AGAIN, other = o->kept[id] && o->segment[id] != stamp;
        if (o->stamp[id] == stamp + 1 || !(again || other)) continue;
        o->stamp[id] = stamp + 1;
        o->list[n_list++] = id;
        /* A masked loop's index wants its beginning alone. */
        const uint32_t n_in = j->op == IR_LOOP ? 1 : j->n_in;
        for (uint32_t n = 0; again && n < n_in; n++) o->stack[depth++] = j->in[n];
    }
    return n_list;
}

/* Gives how many blocks it opened. */
static uint32_t open_lanes(codegen *g) {
    const uint32_t *size = g->k->workgroup;
    const uint32_t innermost = size[0] > 1 ? 0 : size[1] > 1 ? 1 : 2;
    uint32_t opened = 0;
    for (uint32_t axis = 3; axis-- > 0;) {
        if (size[axis] == 1) continue;
        const char c = "xyz"[axis];
        if (axis == innermost) codegen_line(g, "EACH_LANE");
        codegen_open(g, codegen_print(g, "for (u32 local_%c = 0; local_%c < %uu; local_%c++) {", c,
                                      c, (unsigned)size[axis], c));
        opened++;
    }
    if (!opened) codegen_open(g, "{"), opened++;
    codegen_line(g, "ONCE u32 lane = %s + %uu * (%s + %uu * %s);", size[0] > 1 ? "local_x" : "0u",
                 (unsigned)size[0], size[1] > 1 ? "local_y" : "0u", (unsigned)size[1],
                 size[2] > 1 ? "local_z" : "0u");
    return opened;
}

static const char *mask_text(codegen *g, const mask *m) {
    const ir_instruction *i = &g->k->code[m->id];
    if (!m->is_loop) return codegen_print(g, m->other ? "!%s" : "%s", codegen_operand(g, i, 0, 0));
    const char *from = codegen_operand(g, i, 0, 0), *to = codegen_operand(g, i, 1, 0);
    return codegen_print(g, "(%s < %s && %s < %s - %s)", from, to, m->turn, to, from);
}

/* What was asked for by require, in order, and the masks. Gives how many blocks were opened. */
static uint32_t begin_segment(codegen *g, own *o, uint32_t n_list, uint32_t stamp) {
    for (uint32_t n = 0; n < o->n_mask; n++) n_list = require(g, o, stamp, o->masks[n].id, n_list);
    qsort(o->list, n_list, sizeof *o->list, by_id);
    const uint32_t opened = open_lanes(g);
    for (uint32_t n = 0; n < n_list; n++) {
        const ir_id id = o->list[n];
        const ir_instruction *i = &g->k->code[id];
        if (o->kinds[id] != AGAIN) continue;
        if (i->op != IR_LOOP) {
            codegen_one(g, id);
            continue;
        }
        for (uint32_t m = 0; m < o->n_mask; m++)
            if (o->masks[m].id == id)
                codegen_define(
                    g, id, 0,
                    codegen_print(g, "%s + %s", codegen_operand(g, i, 0, 0), o->masks[m].turn));
    }
    const char *all = NULL;
    for (uint32_t n = 0; n < o->n_mask; n++) {
        const char *one = mask_text(g, &o->masks[n]);
        all = all ? codegen_print(g, "%s && %s", all, one) : one;
    }
    if (all) codegen_open(g, codegen_print(g, "if (%s) {", all));
    for (uint32_t n = 0; n < n_list; n++) {
        const ir_id id = o->list[n];
        for (uint32_t lane = 0; o->kinds[id] != AGAIN && lane < g->k->code[id].width; lane++)
            codegen_define(g, id, lane, codegen_print(g, "%s[lane]", kept_name(g, id, lane)));
    }
    return opened + (all != NULL);
}

static void end_segment(codegen *g, uint32_t opened) {
    while (opened--) codegen_close(g);
}

static void keep(codegen *g, own *o, ir_id id) {
    for (uint32_t lane = 0; o->kept[id] && !o->inner[id] && lane < g->k->code[id].width; lane++)
        codegen_line(g, "%s[lane] = %s;", kept_name(g, id, lane), g->texts[g->first[id] + lane]);
}

/* Writes the instructions of LANE kind in [segment_from, end) as one loop over the lanes. */
static void flush(codegen *g, ir_id end) {
    own *o = own_of(g);
    const ir_id from = o->segment_from;
    o->segment_from = IR_NO_ID;
    if (from == IR_NO_ID || g->status) return;
    const uint32_t stamp = o->segment[from];
    uint32_t n_list = 0;
    for (ir_id id = from; id < end; id++)
        if (o->kinds[id] == LANE) n_list = require(g, o, stamp, id, n_list);
    const uint32_t opened = begin_segment(g, o, n_list, stamp);
    for (ir_id id = from; id < end && !g->status; id++) {
        if (o->kinds[id] != LANE) continue;
        codegen_one(g, id);
        if (ir_has_result(&g->k->code[id])) keep(g, o, id);
    }
    end_segment(g, opened);
}

/* ---- lanes that look at each other ----------------------------------------------------------- */

static void fragment(codegen *g, own *o, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *in[4] = {NULL};
    bool all_group = true;
    for (uint32_t n = 0; n < i->n_in; n++) all_group = all_group && o->kinds[i->in[n]] == GROUP;
    if (!all_group) {
        const uint32_t stamp = o->segment[id];
        const uint32_t opened = begin_segment(g, o, require(g, o, stamp, id, 0), stamp);
        for (uint32_t n = 0; n < i->n_in; n++)
            if (o->kinds[i->in[n]] != GROUP)
                codegen_line(g, "%s[lane] = %s;", gathered(g, id, n), codegen_operand(g, i, n, 0));
        end_segment(g, opened);
    }
    for (uint32_t n = 0; n < i->n_in; n++)
        in[n] = o->kinds[i->in[n]] == GROUP ? codegen_operand(g, i, n, 0)
                                            : codegen_print(g, "%s[at]", gathered(g, id, n));
    codegen_c_fragment(g, id, in);
}

static void cross(codegen *g, ir_id id) {
    own *o = own_of(g);
    const ir_instruction *i = &g->k->code[id];
    const ir_type type = (ir_type)i->type;
    const unsigned lanes = (unsigned)ir_lanes(g->k), size = (unsigned)g->k->subgroup_size;
    if (codegen_c_is_fragment(i)) {
        fragment(g, o, id);
        return;
    }
    const uint32_t stamp = o->segment[id];
    const uint32_t opened = begin_segment(g, o, require(g, o, stamp, id, 0), stamp);
    for (uint32_t lane = 0; lane < i->width; lane++)
        codegen_line(g, "%s[lane] = %s;", kept_name(g, id, lane), codegen_operand(g, i, 0, lane));
    end_segment(g, opened);
    for (uint32_t lane = 0; lane < i->width; lane++) {
        const char *s = kept_name(g, id, lane), *name = codegen_type(type);
        codegen_open(g, codegen_print(g, "for (u32 at = 0; at < %uu; at += %uu) {", lanes, size));
        if (i->op == IR_SUBGROUP_SHUFFLE_XOR) {
            codegen_open(g, codegen_print(g, "for (u32 n = 0; n < %uu; n++) {", size));
            codegen_line(g, "const u32 with = n ^ %uu;", (unsigned)i->imm);
            codegen_open(g, "if (n < with) {");
            codegen_line(g, "const %s x = %s[at + n];", name, s);
            codegen_line(g, "%s[at + n] = %s[at + with];", s, s);
            codegen_line(g, "%s[at + with] = x;", s);
            codegen_close(g);
            codegen_close(g);
        } else {
            const bool one = i->op == IR_SUBGROUP_BROADCAST;
            codegen_line(g, "%s x = %s[at + %uu];", name, s, one ? (unsigned)i->imm : 0u);
            if (!one) {
                const ir_op op = i->op == IR_SUBGROUP_ADD   ? IR_ADD
                                 : i->op == IR_SUBGROUP_MIN ? IR_MIN
                                                            : IR_MAX;
                const char *y = codegen_print(g, "%s[at + n]", s);
                codegen_line(g, "for (u32 n = 1; n < %uu; n++) x = %s;", size,
                             codegen_combine(g, op, type, "x", y));
            }
            codegen_line(g, "for (u32 n = 0; n < %uu; n++) %s[at + n] = x;", size, s);
        }
        codegen_close(g);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void open_block(codegen *g, ir_id id) {
    own *o = own_of(g);
    const ir_instruction *i = &g->k->code[id];
    if (o->kinds[id] == GROUP) {
        codegen_one(g, id);
        return;
    }
    mask *m = &o->masks[o->n_mask++];
    *m = (mask){.id = id, .is_loop = i->op == IR_LOOP};
    if (!m->is_loop) {
        codegen_open(g, "{");
        return;
    }
    m->turn = codegen_print(g, "t%u", (unsigned)g->temporaries++);
    codegen_open(g,
                 codegen_print(g, "for (u32 %s = 0; %s < %s; %s += %s) {", m->turn, m->turn,
                               codegen_operand(g, i, 1, 0), m->turn, codegen_operand(g, i, 2, 0)));
}

static void turn_block(codegen *g, ir_id id) { /* else or end */
    own *o = own_of(g);
    const bool is_end = g->k->code[id].op == IR_END;
    const bool masked = o->n_mask && (is_end ? o->next[id] == o->masks[o->n_mask - 1].id
                                             : o->next[o->masks[o->n_mask - 1].id] == id);
    if (!masked) codegen_one(g, id);
    else if (!is_end) o->masks[o->n_mask - 1].other = true;
    else o->n_mask--, codegen_close(g);
}

static void walk(codegen *g) {
    own *o = own_of(g);
    o->segment_from = IR_NO_ID;
    for (ir_id id = 0; id < g->k->n_code && !g->status; id++) {
        const ir_op op = (ir_op)g->k->code[id].op;
        if (op == IR_LOOP || op == IR_IF) {
            if (o->modes[id] == LANES) { /* as a whole in the segment */
                if (o->segment_from == IR_NO_ID) o->segment_from = id;
                id = o->next[id];
                if (g->k->code[id].op == IR_ELSE) id = o->next[id];
                continue;
            }
            flush(g, id);
            open_block(g, id);
        } else if (op == IR_ELSE || op == IR_END) {
            flush(g, id);
            turn_block(g, id);
        } else if (o->kinds[id] == CROSS) {
            flush(g, id);
            cross(g, id);
        } else if (op == IR_BARRIER || op == IR_UNIFORM_LOAD) {
            flush(g, id);
            if (op == IR_UNIFORM_LOAD) codegen_one(g, id);
        } else if (o->kinds[id] == GROUP) {
            if (op == IR_STORE) flush(g, id);
            codegen_one(g, id);
        } else if (o->kinds[id] == LANE && o->segment_from == IR_NO_ID) {
            o->segment_from = id;
        }
    }
    flush(g, g->k->n_code);
}

static void atomic(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    base_text text;
    base_text_init(&text, g->arena->heap);
    place(g, &text, (ir_space)i->space, i->array, codegen_index_of(g, i, 0), 0);
    const char *at = text.failed || !text.data ? "" : text.data,
               *value = codegen_operand(g, i, 1, 0);
    if (i->op == IR_ATOMIC_ADD)
        codegen_define(
            g, id, 0, codegen_print(g, "__atomic_fetch_add(&%s, %s, __ATOMIC_RELAXED)", at, value));
    else
        codegen_define(g, id, 0,
                       codegen_print(g, "atomic_%s_%s(&%s, %s)",
                                     i->op == IR_ATOMIC_MIN ? "min" : "max",
                                     codegen_type((ir_type)i->type), at, value));
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
}

static bool plan(codegen *g, own *o) {
    const size_t n = g->k->n_code + 1;
    bool *uniform = base_arena_take(g->arena, n, sizeof *uniform);
    o->kinds = base_arena_take(g->arena, n, 1);
    o->modes = base_arena_take(g->arena, n, 1);
    o->kept = base_arena_take(g->arena, n, sizeof *o->kept);
    o->inner = base_arena_take(g->arena, n, sizeof *o->inner);
    o->segment = base_arena_take(g->arena, n, sizeof *o->segment);
    o->next = base_arena_take(g->arena, n, sizeof *o->next);
    o->stamp = base_arena_take(g->arena, n, sizeof *o->stamp);
    o->list = base_arena_take(g->arena, n, sizeof *o->list);
    o->stack = base_arena_take(g->arena, 4 * n + 16, sizeof *o->stack);
    if (!uniform || !o->kinds || !o->modes || !o->kept || !o->inner || !o->segment || !o->next ||
        !o->stamp || !o->list || !o->stack)
        return false;
    ir_uniform(g->k, uniform);
    ir_blocks(g->k, o->next);
    find_group_arrays(g, o, uniform);
    if (ir_lanes(g->k) == 1) return true;
    classify(g, o, uniform);
    find_kept(g, o);
    return true;
}

/* Halves of a kernel's only lane are read one by one, in loops of nothing else. */
static bool has_halves_in_lines(const ir_kernel *k) {
    struct {
        bool halves, stores, holds; /* holds: blocks, or it is no loop */
    } blocks[IR_DEPTH_MAX + 1] = {{false, false, true}}, *at = blocks;
    bool any = false;
    for (ir_id id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        if (i->op == IR_LOOP || i->op == IR_IF) {
            at->holds = true;
            at++;
            at->halves = at->stores = false, at->holds = i->op == IR_IF;
        } else if (i->op == IR_END) {
            if (at->halves && (at->holds || !at->stores)) return false;
            any |= at->halves;
            at--;
        } else if ((i->op == IR_LOAD || i->op == IR_STORE) && i->space == IR_BUFFER &&
                   i->width == 1) {
            at->halves |= i->op == IR_LOAD && k->buffers[i->array].type == IR_F16;
            at->stores |= i->op == IR_STORE;
        }
    }
    return any && ir_lanes(k) == 1 && !blocks->halves;
}

static void kernel(codegen *g) {
    const ir_kernel *k = g->k;
    own o = {.n_mask = 0};
    g->own = &o;
    base_text_init(&o.arrays, g->arena->heap);
    if (!plan(g, &o)) codegen_no_memory(g);
    /* gcc 12 makes vectors of what the bits tell, and none of conversions */
    if (has_halves_in_lines(k)) g->more = "#ifndef __clang__\n#undef HAS_HALF\n#endif\n";
    if (!g->status) declare_arrays(g);
    if (!g->status) {
        base_text_print(&g->head,
                        "uint32_t %s_scratch_bytes(void);\nuint32_t %s_scratch_bytes(void) {\n    "
                        "return %uu;\n}\n",
                        g->entry, g->entry, (unsigned)o.scratch_bytes);
        base_text_print(&g->head,
                        "void %s(void *const *buffers, const uint32_t *params, const uint32_t "
                        "groups[3], uint32_t first,\n"
                        "    uint32_t count, void *scratch);\n",
                        g->entry);
        base_text_print(&g->head,
                        "void %s(void *const *buffers, const uint32_t *params, const uint32_t "
                        "groups[3], uint32_t first,\n"
                        "    uint32_t count, void *scratch) {\n    (void)buffers, (void)params, "
                        "(void)scratch;\n",
                        g->entry);
        for (uint32_t n = 0; n < k->n_buffer; n++) {
            const char *constant = k->buffers[n].access == IR_READ ? "const " : "",
                       *type = codegen_c_memory_type(k->buffers[n].type);
            codegen_line(g, "%s%s *restrict const b%u = (%s%s *)buffers[%u]; /* %s */", constant,
                         type, n, constant, type, n, k->buffers[n].name);
        }
        codegen_params(g, "params[%u]", true);
        base_text_add(&g->body, o.arrays.data ? o.arrays.data : "", o.arrays.size);
        if (o.arrays.failed) codegen_no_memory(g);
        codegen_line(g,
                     "ONCE u32 groups_x = groups[0], groups_y = groups[1], groups_z = groups[2];");
        const bool tiles = codegen_c_tiles(g);
        if (tiles) codegen_line(g, "tiles_begin();");
        codegen_open(g, "for (u32 group = first; group - first < count; group++) {");
        codegen_line(
            g, "ONCE u32 group_x = group %% groups_x, group_y = group / groups_x %% groups_y, "
               "group_z = group / groups_x / groups_y;");
        if (ir_lanes(k) > 1) {
            walk(g);
        } else { /* a plain function: no cuts */
            codegen_line(g, "ONCE u32 lane = 0u;");
            codegen_c_vectors(g);
            codegen_walk(g, 0, k->n_code);
        }
        codegen_close(g);
        if (tiles) codegen_line(g, "tiles_end();");
        for (uint32_t n = 0; n < k->n_buffer; n++)
            if (k->buffers[n].access == IR_WRITE_PAST) {
                codegen_line(g, "past_end();");
                break;
            }
        g->indent = 0;
        codegen_line(g, "}");
    }
    base_text_fini(&o.arrays);
    g->own = NULL;
}

const codegen_language_info codegen_c = {
    .name = "C",
    .language = DEVICE_C,
    .types = types,
    .barrier = "",
    .unroll = "_Pragma(\"GCC unroll %u\")",
    .place = place,
    .load = codegen_c_load,
    .store = codegen_c_store,
    .atomic = atomic,
    .fragment = codegen_c_fragment_lane,
    .kernel = kernel,
};
