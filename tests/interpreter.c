/* interpreter.c - see interpreter.h. Fetched bytes are copies that live until the sixth later
 * submit with fetches.
 *
 * What passes make of a kernel may count on what a schedule promises of its parameters, which a
 * device learns with the first dispatch: so that is when they run, and again where a later
 * dispatch breaks the promise. */
#include "interpreter.h"
#include "ir_draw.h"

#include "base/error.h"
#include "base/thread.h"
#include "ir/ir.h"
#include "ir/pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGE_BYTES = 1 << 20, PROMISE_MAX = 256, GROUPS_MAX = 4 };

typedef struct memory {
    device_buffer_item head;
    unsigned char *data; // [head.size]
} memory;

typedef struct program {
    device_program_item head;
    base_arena arena, made; /* of the kernel as it was lowered; of what passes made of it */
    const ir_kernel *lowered, *kernel; /* kernel NULL: not yet */
    bool marked;                       /* a schedule says what its groups share */
    uint64_t draws;                    /* 0: as every device does it */
    ir_schedule schedule;
} program;

typedef struct readback {
    device_ticket ticket; /* 0: free */
    base_vec(struct fetch {
        void *data;
        size_t size;
    }) fetches;
} readback;

typedef struct interpreter {
    device head;
    void *stage; // [STAGE_BYTES], NULL until used
    readback readbacks[DEVICE_READBACK_MAX];
    uint32_t next;
    uint64_t seed; /* of what is drawn; 0: nothing is */
} interpreter;

static const device_backend backend;

static void readback_clear(base_heap *heap, readback *r) {
    for (size_t i = 0; i < r->fetches.count; i++)
        base_heap_give(heap, r->fetches.data[i].data, r->fetches.data[i].size);
    r->fetches.count = 0;
    r->ticket = 0;
}

static void close_device(device *head) {
    interpreter *d = (interpreter *)head;
    base_heap *heap = head->heap;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        readback_clear(heap, &d->readbacks[i]);
        base_vec_fini(heap, &d->readbacks[i].fetches);
    }
    base_heap_give(heap, d->stage, d->stage ? STAGE_BYTES : 0);
    base_heap_give(heap, d, sizeof *d);
}

static beryl_status buffer_make(device *d, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    memory *m = (memory *)item;
    m->data = base_heap_take(d->heap, (size_t)item->size);
    return m->data ? BERYL_OK
                   : base_fail(error, BERYL_NO_DEVICE_MEMORY, "no memory for %s",
                               label ? label : "a buffer");
}

static void buffer_drop(device *d, device_buffer_item *item) {
    memory *m = (memory *)item;
    if (m->data) base_heap_give(d->heap, m->data, (size_t)item->size);
}

static beryl_status write_bytes(device *d, device_buffer_item *item, uint64_t offset,
                                const void *data, size_t size, beryl_error *error) {
    (void)d, (void)error;
    memcpy(((memory *)item)->data + offset, data, size);
    return BERYL_OK;
}

static size_t stage_max(const device *d) {
    (void)d;
    return STAGE_BYTES;
}

static beryl_status stage(device *head, size_t size, void **to, beryl_error *error) {
    (void)size;
    interpreter *d = (interpreter *)head;
    if (!d->stage) d->stage = base_heap_take(head->heap, STAGE_BYTES);
    *to = d->stage;
    return d->stage ? BERYL_OK : base_fail(error, BERYL_NO_MEMORY, "no memory for staging");
}

static beryl_status stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    return write_bytes(head, item, offset, ((interpreter *)head)->stage, size, error);
}

/* ---- programs: passes and schedules ---------------------------------------------------------- */

void interpreter_draw(device *d, uint64_t seed) {
    ((interpreter *)d)->seed = seed;
}

uint64_t interpreter_drawn(const device *d) {
    return d && d->backend == &backend ? ((const interpreter *)d)->seed : 0;
}

static bool is_marked(const ir_kernel *k) {
    bool marked = false;
    for (uint32_t i = 0; i < k->n_code; i++)
        marked |= k->code[i].op == IR_LOOP && ir_mark_of(&k->code[i]).kind != IR_SERIAL;
    return marked;
}

static beryl_status program_make(device *d, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error) {
    program *p = (program *)item;
    const uint64_t seed = ((interpreter *)d)->seed;
    base_arena_init(&p->arena, d->heap);
    base_arena_init(&p->made, d->heap);
    const beryl_status status =
        ir_parse(&p->arena, desc->source, desc->source_size, &p->lowered, error);
    if (status != BERYL_OK) return status;
    p->marked = is_marked(p->lowered);
    p->draws =
        seed ? (seed * 0x9e3779b97f4a7c15u ^ base_hash(desc->source, desc->source_size, 1)) | 1 : 0;
    return BERYL_OK;
}

/* The largest power of two that is a promise which a dispatch with this parameter keeps. */
static uint32_t promise_of(uint32_t value) {
    uint32_t multiple = 1;
    while (multiple < PROMISE_MAX && value % (2 * multiple) == 0) multiple *= 2;
    return multiple;
}

static bool keeps_promises(const program *p, const uint32_t *params) {
    bool kept = true;
    for (uint32_t i = 0; i < p->lowered->n_param; i++)
        kept = kept &&
               (!p->schedule.param_multiple[i] || params[i] % p->schedule.param_multiple[i] == 0);
    return kept;
}

/* By the rule of thumb, or drawn. */
static void choose_schedule(const device *d, program *p, const uint32_t *params) {
    const ir_kernel *k = p->lowered;
    uint64_t extents[IR_DIM_MAX] = {0};
    for (uint32_t i = 0; i < k->n_code; i++) {
        const ir_instruction *loop = &k->code[i];
        if (loop->op == IR_LOOP && ir_mark_of(loop).kind != IR_SERIAL &&
            k->code[loop->in[1]].op == IR_PARAM)
            extents[ir_mark_of(loop).dim] = params[k->code[loop->in[1]].array];
    }
    if (p->draws && ir_draw(&p->draws, 3)) p->schedule = ir_draw_schedule(&p->draws);
    else ir_schedule_default(k, &d->caps, extents, &p->schedule);
    for (uint32_t i = 0; i < k->n_param; i++)
        if (k->params[i].type == IR_U32 && !(p->draws && ir_draw(&p->draws, 2)))
            p->schedule.param_multiple[i] = promise_of(params[i]);
}

static void show(base_heap *heap, const program *p, const ir_pass *passes, size_t n) {
    if (!getenv("BERYL_TEST_SHOW")) return;
    base_text text;
    base_text_init(&text, heap);
    for (size_t i = 0; i < n; i++) base_text_print(&text, "%s ", ir_pass_of(passes[i])->name);
    for (uint32_t d = 0; p->marked && d < IR_DRAW_DIMS; d++) {
        const ir_schedule_dim *dim = &p->schedule.dims[d];
        base_text_print(&text,
                        "\n; %u: group %u lane %u lanes %u block %u unroll %u stage %u ahead %d "
                        "split %d wide %u",
                        d, dim->group, dim->lane, dim->lanes, dim->block, dim->unroll, dim->stage,
                        dim->ahead, dim->split, dim->wide);
    }
    base_text_print(&text, "\n; fragments %d subgroup %u vector %u\n", p->schedule.fragments,
                    p->schedule.subgroup, p->schedule.vector);
    ir_print(&text, p->lowered);
    ir_print(&text, p->kernel);
    fprintf(stderr, "; %s: passes %s", p->lowered->name, text.data ? text.data : "");
    base_text_fini(&text);
}

static beryl_status run_passes(device *d, program *p, const uint32_t *params, beryl_error *error) {
    ir_pass drawn[IR_DRAW_PASSES];
    size_t n;
    const ir_pass *passes = ir_passes_usual(&n);
    base_arena_fini(&p->made);
    base_arena_init(&p->made, d->heap);
    p->schedule = (ir_schedule){0};
    if (p->marked) choose_schedule(d, p, params);
    if (p->draws) n = ir_draw_order(&p->draws, drawn), passes = drawn;
    const beryl_status status =
        ir_passes_run(&p->made, p->lowered, &p->schedule, passes, n, true, &p->kernel, error);
    if (status == BERYL_OK) show(d->heap, p, passes, n);
    return status;
}

/* Where a schedule decides, any number on the axes in use is right. */
static void choose_groups(program *p, const uint32_t *params, const uint32_t given[3],
                          uint32_t groups[3]) {
    ir_grid grid;
    memcpy(groups, given, 3 * sizeof *groups);
    if (!p->marked) return;
    ir_grid_of(p->kernel, &grid);
    ir_grid_run(&grid, params, 0, groups);
    for (int axis = 0; axis < 3 && p->draws && ir_draw(&p->draws, 2); axis++)
        if (grid.axes[axis] != 255) groups[axis] = 1 + ir_draw(&p->draws, GROUPS_MAX);
}

static beryl_status program_status(device *d, device_program_item *item, beryl_error *error) {
    (void)d, (void)item, (void)error;
    return BERYL_OK;
}

static void program_drop(device *d, device_program_item *item) {
    (void)d;
    base_arena_fini(&((program *)item)->arena);
    base_arena_fini(&((program *)item)->made);
}

static beryl_status bindings_make(device *d, device_bindings_item *item, beryl_error *error) {
    (void)d, (void)item, (void)error;
    return BERYL_OK;
}

static void bindings_drop(device *d, device_bindings_item *item) {
    (void)d, (void)item;
}

static beryl_status run(device *d, const device_submit_desc *desc, const device_command *c,
                        beryl_error *error) {
    program *p = device_pool_at(&d->programs, c->dispatch.program.id);
    const device_bindings_item *bindings = device_pool_at(&d->bindings, c->dispatch.bindings.id);
    ir_run r = {0};
    for (uint32_t i = 0; i < bindings->n_binding; i++) {
        r.buffers[i].data =
            ((memory *)bindings->ranges[i].buffer)->data + bindings->ranges[i].offset;
        r.buffers[i].size = bindings->ranges[i].size;
    }
    memcpy(r.params, (const char *)desc->params + c->dispatch.param_offset, p->head.param_bytes);
    beryl_error inside = {0};
    beryl_status status =
        p->kernel && keeps_promises(p, r.params) ? BERYL_OK : run_passes(d, p, r.params, error);
    if (status != BERYL_OK) return status;
    choose_groups(p, r.params, c->dispatch.groups, r.groups);
    status = ir_interpret(d->heap, p->kernel, &r, &inside);
    if (status == BERYL_OK) return status;
    base_text text;
    base_text_init(&text, d->heap);
    ir_print_one(&text, p->kernel, (ir_id)inside.at);
    base_fail(error, status, "%s: %s [%s]", p->kernel->name, inside.message,
              text.data ? text.data : "");
    base_text_fini(&text);
    return status;
}

static beryl_status fetch(device *d, readback *r, const device_command *c, beryl_error *error) {
    struct fetch *f = base_vec_add(d->heap, &r->fetches);
    if (f) f->data = base_heap_take(d->heap, (size_t)c->fetch.size);
    if (!f || !f->data) return base_fail(error, BERYL_NO_MEMORY, "no memory for a result");
    f->size = (size_t)c->fetch.size;
    const memory *from = device_pool_at(&d->buffers, c->fetch.buffer.id);
    memcpy(f->data, from->data + c->fetch.offset, f->size);
    return BERYL_OK;
}

static beryl_status submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    interpreter *d = (interpreter *)head;
    readback *r = &d->readbacks[d->next++ % DEVICE_READBACK_MAX];
    readback_clear(head->heap, r);
    r->ticket = ticket;
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        switch (c->kind) {
        case DEVICE_DISPATCH: status = run(head, desc, c, error); break;
        case DEVICE_COPY: {
            memory *to = device_pool_at(&head->buffers, c->copy.to.id),
                   *from = device_pool_at(&head->buffers, c->copy.from.id);
            memmove(to->data + c->copy.to_offset, from->data + c->copy.from_offset,
                    (size_t)c->copy.size);
            break;
        }
        case DEVICE_FILL: {
            memory *to = device_pool_at(&head->buffers, c->fill.buffer.id);
            memset(to->data + c->fill.offset, 0, (size_t)c->fill.size);
            break;
        }
        case DEVICE_FETCH: status = fetch(head, r, c, error); break;
        case DEVICE_STAMP: break;
        }
    }
    return status;
}

static beryl_status poll(device *d, device_ticket *done, beryl_error *error) {
    (void)error;
    *done = d->last;
    return BERYL_OK;
}

static beryl_status wait(device *d, device_ticket ticket, beryl_error *error) {
    (void)d, (void)ticket, (void)error;
    return BERYL_OK;
}

static readback *find(device *head, device_ticket ticket) {
    interpreter *d = (interpreter *)head;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++)
        if (d->readbacks[i].ticket == ticket) return &d->readbacks[i];
    return NULL;
}

static beryl_status fetched(device *d, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    const readback *r = find(d, ticket);
    if (!r || n >= r->fetches.count) return base_fail(error, BERYL_MISUSE, "a result that is gone");
    *data = r->fetches.data[n].data;
    *size = r->fetches.data[n].size;
    return BERYL_OK;
}

static void fetch_drop(device *d, device_ticket ticket) {
    readback *r = find(d, ticket);
    if (r) readback_clear(d->heap, r);
}

static beryl_status stamps(device *d, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    (void)d, (void)ticket, (void)ns;
    *n_stamp = 0;
    return base_fail(error, BERYL_UNSUPPORTED, "the interpreter has no clock");
}

static const device_backend backend = {
    .name = "interpreter",
    .hidden = true,
    .buffer_bytes = sizeof(memory),
    .program_bytes = sizeof(program),
    .bindings_bytes = sizeof(device_bindings_item),
    .close = close_device,
    .buffer_make = buffer_make,
    .buffer_drop = buffer_drop,
    .write = write_bytes,
    .stage_max = stage_max,
    .stage = stage,
    .stage_commit = stage_commit,
    .program_make = program_make,
    .program_status = program_status,
    .program_drop = program_drop,
    .bindings_make = bindings_make,
    .bindings_drop = bindings_drop,
    .submit = submit,
    .poll = poll,
    .wait = wait,
    .fetched = fetched,
    .fetch_drop = fetch_drop,
    .stamps = stamps,
};

device *interpreter_open(base_heap *heap) {
    interpreter *d = base_heap_take(heap, sizeof *d);
    if (!d) return NULL;
    d->head = (device){.backend = &backend, .heap = heap};
    d->head.caps = (device_caps){.backend = "interpreter",
                                 .name = "interpreter of tests",
                                 .driver = "",
                                 .kind = DEVICE_HOST,
                                 .f16 = true,
                                 .dot_words = 16,
                                 .languages = DEVICE_LANGUAGE_BIT(DEVICE_IR),
                                 .workgroup_bytes = 32 << 10,
                                 .workgroup_invocations = 1024,
                                 .workgroup_size = {1024, 1024, 64},
                                 .groups_max = 65535,
                                 .storage_max = DEVICE_BINDING_MAX,
                                 .binding_max = 1 << 30,
                                 .buffer_max = 1 << 30,
                                 .align_binding = 64};
    return &d->head;
}

device *interpreter_units_open(base_heap *heap) {
    device *d = interpreter_open(heap);
    if (!d) return NULL;
    d->caps.kind = DEVICE_DISCRETE;
    d->caps.fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32) |
                        DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_BF16_F32);
    d->caps.subgroups = true;
    d->caps.subgroup_size = 32;
    return d;
}
