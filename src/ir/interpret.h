/* interpret.h - the machine of interpret.c, for its files alone. */
#ifndef IR_INTERPRET_H
#define IR_INTERPRET_H

#include "ir/ir.h"

/* Who touched an element. Actors are lanes of the whole dispatch, from 1. */
typedef struct shadow {
    uint32_t writer, written_at; /* at: which interval, see interval_of */
    uint32_t reader, read_at;    /* the last one */
    bool several;                /* lanes read it in read_at */
    bool groups;                 /* more than one workgroup read it */
    bool atomic;                 /* the writer was an atomic op */
} shadow;

typedef struct area { /* a buffer or an array */
    ir_space space;
    uint32_t array, bytes; /* bytes: of an element */
    uint64_t count;
    const char *name;
} area;

typedef struct frame {
    uint32_t opener; /* loop or if */
    bool *outer;     /* [L] lanes that ran before it */
} frame;

typedef struct copy {
    uint32_t lane, group, id; /* group: of this lane's, counted; id: the instruction */
    uint64_t to, from;
    bool valid;
} copy;

typedef struct machine {
    const ir_kernel *k;
    const ir_run *run;
    beryl_error *error;
    beryl_status status;
    base_arena arena;
    uint32_t lanes;
    uint64_t **values; /* [N] of [L, width], NULL: no result */
    uint32_t *next;    /* [N] of ir_blocks */
    bool *mask;        /* [L] */
    frame frames[IR_DEPTH_MAX];
    uint32_t depth, n_active;
    uint64_t *registers[IR_ARRAY_MAX], *workgroups[IR_ARRAY_MAX]; /* [L, count]; [count] */
    bool *written[IR_ARRAY_MAX];                                  /* [L, count] of registers */
    uint64_t *fragments[IR_ARRAY_MAX];                            /* [L / subgroup, count, size] */
    bool *filled[IR_ARRAY_MAX];                                   /* [L / subgroup, count] */
    shadow *of_buffers[IR_BUFFER_MAX], *of_workgroups[IR_ARRAY_MAX];
    uint32_t group[3], group_number, interval;
    uint32_t *committed; /* [L] groups of copies */
    base_vec(copy) copies;
    uint64_t steps;
    ir_id id; /* the instruction that runs */
    uint32_t lane;
} machine;

static inline uint64_t *interpret_value(const machine *m, ir_id id, uint32_t lane) {
    return m->values[id] + (size_t)lane * m->k->code[id].width;
}

static inline const ir_instruction *interpret_at(const machine *m) {
    return &m->k->code[m->id];
}

static inline uint64_t interpret_operand(const machine *m, uint32_t n, uint32_t lane) {
    return *interpret_value(m, interpret_at(m)->in[n], lane);
}

/* Of a fragment's matrices. */
static inline uint32_t interpret_rows(const ir_fragment_decl *f) {
    return f->role == IR_ROLE_B ? f->k : f->m;
}

static inline uint32_t interpret_columns(const ir_fragment_decl *f) {
    return f->role == IR_ROLE_A ? f->k : f->n;
}

/* The first failure counts. */
void interpret_fail(machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
area interpret_area(const machine *m, ir_space space, uint32_t array);
/* false: it has failed. */
bool interpret_inside(machine *m, const area *p, uint64_t index, uint64_t width);
uint64_t interpret_get(machine *m, const area *p, uint64_t index, bool atomic);
void interpret_put(machine *m, const area *p, uint64_t index, uint64_t bits, bool atomic);
/* One instruction on fragments, by every subgroup. */
void interpret_fragment(machine *m);

#endif
