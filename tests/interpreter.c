/* interpreter.c - see interpreter.h. Fetched bytes are copies that live until the sixth later submit with fetches. */
#include "interpreter.h"

#include "base/error.h"
#include "base/thread.h"
#include "ir/ir.h"
#include "ir/pass/pass.h"

#include <string.h>

enum { STAGE_BYTES = 1 << 20, PASSES_MAX = 12 };

typedef struct memory {
    device_buffer_item head;
    unsigned char *data; // [head.size]
} memory;

typedef struct program {
    device_program_item head;
    base_arena arena;
    const ir_kernel *kernel;
} program;

typedef struct readback {
    device_ticket ticket; /* 0: free */
    base_vec(struct fetch { void *data; size_t size; }) fetches;
} readback;

typedef struct interpreter {
    device head;
    void *stage; // [STAGE_BYTES], NULL until used
    readback readbacks[DEVICE_READBACK_MAX];
    uint32_t next;
    uint64_t shuffle; /* 0: programs run as they are */
} interpreter;

static const device_backend backend;

static void readback_clear(base_heap *heap, readback *r) {
    for (size_t i = 0; i < r->fetches.count; i++) base_heap_give(heap, r->fetches.data[i].data, r->fetches.data[i].size);
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

static beryl_status buffer_make(device *d, device_buffer_item *item, const char *label, beryl_error *error) {
    memory *m = (memory *)item;
    m->data = base_heap_take(d->heap, (size_t)item->size);
    return m->data ? BERYL_OK : base_fail(error, BERYL_NO_DEVICE_MEMORY, "no memory for %s", label ? label : "a buffer");
}

static void buffer_drop(device *d, device_buffer_item *item) {
    memory *m = (memory *)item;
    if (m->data) base_heap_give(d->heap, m->data, (size_t)item->size);
}

static beryl_status write_bytes(device *d, device_buffer_item *item, uint64_t offset, const void *data, size_t size, beryl_error *error) {
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

static beryl_status stage_commit(device *head, device_buffer_item *item, uint64_t offset, size_t size, beryl_error *error) {
    return write_bytes(head, item, offset, ((interpreter *)head)->stage, size, error);
}

void interpreter_shuffle(device *d, uint64_t seed) {
    ((interpreter *)d)->shuffle = seed;
}

static beryl_status program_make(device *d, device_program_item *item, const device_program_desc *desc, beryl_error *error) {
    program *p = (program *)item;
    base_random random = {((interpreter *)d)->shuffle};
    base_arena_init(&p->arena, d->heap);
    beryl_status status = ir_parse(&p->arena, desc->source, desc->source_size, &p->kernel, error);
    if (status != BERYL_OK || !random.state) return status;
    random.state += base_hash(desc->source, desc->source_size, 1);
    ir_pass passes[PASSES_MAX];
    const size_t n = base_random_next(&random) % PASSES_MAX;
    for (size_t i = 0; i < n; i++) passes[i] = (ir_pass)(base_random_next(&random) % IR_PASS_COUNT);
    return ir_passes_run(&p->arena, p->kernel, NULL, passes, n, true, &p->kernel, error);
}

static beryl_status program_status(device *d, device_program_item *item, beryl_error *error) {
    (void)d, (void)item, (void)error;
    return BERYL_OK;
}

static void program_drop(device *d, device_program_item *item) {
    (void)d;
    base_arena_fini(&((program *)item)->arena);
}

static beryl_status bindings_make(device *d, device_bindings_item *item, beryl_error *error) {
    (void)d, (void)item, (void)error;
    return BERYL_OK;
}

static void bindings_drop(device *d, device_bindings_item *item) {
    (void)d, (void)item;
}

static beryl_status run(device *d, const device_submit_desc *desc, const device_command *c, beryl_error *error) {
    const program *p = device_pool_at(&d->programs, c->dispatch.program.id);
    const device_bindings_item *bindings = device_pool_at(&d->bindings, c->dispatch.bindings.id);
    ir_run r = {0};
    for (uint32_t i = 0; i < bindings->n_binding; i++) {
        r.buffers[i].data = ((memory *)bindings->ranges[i].buffer)->data + bindings->ranges[i].offset;
        r.buffers[i].size = bindings->ranges[i].size;
    }
    memcpy(r.params, (const char *)desc->params + c->dispatch.param_offset, p->head.param_bytes);
    memcpy(r.groups, c->dispatch.groups, sizeof r.groups);
    beryl_error inside = {0};
    beryl_status status = ir_interpret(d->heap, p->kernel, &r, &inside);
    if (status == BERYL_OK) return status;
    base_text text;
    base_text_init(&text, d->heap);
    ir_print_one(&text, p->kernel, (ir_id)inside.at);
    base_fail(error, status, "%s: %s [%s]", p->kernel->name, inside.message, text.data ? text.data : "");
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

static beryl_status submit(device *head, const device_submit_desc *desc, device_ticket ticket, beryl_error *error) {
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
            memory *to = device_pool_at(&head->buffers, c->copy.to.id), *from = device_pool_at(&head->buffers, c->copy.from.id);
            memmove(to->data + c->copy.to_offset, from->data + c->copy.from_offset, (size_t)c->copy.size);
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

static beryl_status fetched(device *d, device_ticket ticket, uint32_t n, const void **data, size_t *size, beryl_error *error) {
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

static beryl_status stamps(device *d, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp, beryl_error *error) {
    (void)d, (void)ticket, (void)ns;
    *n_stamp = 0;
    return base_fail(error, BERYL_UNSUPPORTED, "the interpreter has no clock");
}

static const device_backend backend = {
    .name = "interpreter", .hidden = true, .buffer_bytes = sizeof(memory), .program_bytes = sizeof(program),
    .bindings_bytes = sizeof(device_bindings_item), .close = close_device, .buffer_make = buffer_make, .buffer_drop = buffer_drop,
    .write = write_bytes, .stage_max = stage_max, .stage = stage, .stage_commit = stage_commit, .program_make = program_make,
    .program_status = program_status, .program_drop = program_drop, .bindings_make = bindings_make, .bindings_drop = bindings_drop,
    .submit = submit, .poll = poll, .wait = wait, .fetched = fetched, .fetch_drop = fetch_drop, .stamps = stamps,
};

device *interpreter_open(base_heap *heap) {
    interpreter *d = base_heap_take(heap, sizeof *d);
    if (!d) return NULL;
    d->head = (device){.backend = &backend, .heap = heap};
    d->head.caps = (device_caps){.backend = "interpreter", .name = "interpreter of tests", .driver = "", .kind = DEVICE_HOST, .f16 = true,
                                 .languages = DEVICE_LANGUAGE_BIT(DEVICE_IR), .workgroup_bytes = 32 << 10,
                                 .workgroup_invocations = 1024, .workgroup_size = {1024, 1024, 64}, .groups_max = 65535,
                                 .storage_max = DEVICE_BINDING_MAX, .binding_max = 1 << 30, .buffer_max = 1 << 30, .align_binding = 64};
    return &d->head;
}
