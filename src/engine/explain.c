/* explain.c - what becomes of a model's plan, of a graph or of one kernel, stage by stage as
 * text. Makes a plan of its own beside those that the engine runs, and runs nothing. */
#include "base/error.h"
#include "base/file.h"
#ifndef __wasm__
#include "codegen/codegen.h"
#include "ir/pass/pass.h"
#endif
#include "engine/graph_api.h"
#include "engine/out.h"
#include "engine/towers.h"
#include "graph/text.h"

#include <string.h>

typedef void write_fn(void *user, const char *text, size_t size);

static beryl_status options_of(const beryl_explain_options *from, beryl_explain_options *to,
                               beryl_error *error) {
    static const beryl_explain_options none = {.size = sizeof none};
    if (!from) from = &none;
    if (from->size < offsetof(beryl_explain_options, device) || from->size > 1 << 16)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_explain_options.size is %zu: set it to sizeof(beryl_explain_options)",
            from->size);
    *to = none;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    if ((unsigned)to->stage > BERYL_STAGE_CODE || (unsigned)to->plan > BERYL_PLAN_SOUND ||
        (unsigned)to->precision > BERYL_PRECISION_EXACT)
        return base_fail(error, BERYL_MISUSE, "no such stage, plan or precision");
    return BERYL_OK;
}

static engine_plan_kind plain_kind(const beryl_engine *e, beryl_plan plan, bool near) {
    switch (plan) {
    case BERYL_PLAN_DECODE: return near && engine_has_near(e) ? PLAN_DECODE_NEAR : PLAN_DECODE;
    case BERYL_PLAN_PREFILL: return PLAN_PREFILL;
    case BERYL_PLAN_OUTPUT: return PLAN_OUTPUT;
    case BERYL_PLAN_LOGITS: return PLAN_LOGITS;
    case BERYL_PLAN_BATCH: return e->options.sessions <= 8 ? PLAN_DECODE_8 : PLAN_DECODE_ALL;
    case BERYL_PLAN_PICTURE:
    case BERYL_PLAN_SOUND: break;
    }
    return PLAN_DECODE;
}

engine_plan_kind engine_plan_kind_of(const beryl_engine *e, beryl_plan plan, bool near) {
    return (engine_plan_kind)(plain_kind(e, plan, near) + (e->lora.open.count ? PLAN_ADAPTED : 0));
}

/* ---- a plan ---------------------------------------------------------------------------------- */

static beryl_status print_stage(const device *d, const beryl_explain_options *o, const graph *g,
                                const graph_exec *exec, base_text *out, beryl_error *error) {
    const uint32_t *only = o->one ? &o->op : NULL;
    bool found = true;
    if (o->stage != BERYL_STAGE_GRAPH && !d)
        return base_fail(
            error, BERYL_UNSUPPORTED,
            "the reference device runs the graph node by node: it has no plan and no kernels");
    switch (o->stage) {
    case BERYL_STAGE_GRAPH: found = graph_explain_nodes(g, only, out); break;
    case BERYL_STAGE_PLAN: found = graph_exec_explain_plan(exec, only, out); break;
    case BERYL_STAGE_IR: found = graph_exec_explain_kernels(exec, false, only, out); break;
    case BERYL_STAGE_CODE: found = graph_exec_explain_kernels(exec, true, only, out); break;
    }
    if (out->failed) return base_no_memory(error);
    return found ? BERYL_OK
                 : base_fail(error, BERYL_NOT_FOUND, "there is no %s %u",
                             o->stage == BERYL_STAGE_GRAPH ? "live node" : "dispatch", o->op);
}

static beryl_status explain_text(beryl_engine *e, const beryl_explain_options *o,
                                 const graph_exec_options *with, base_text *out,
                                 beryl_error *error) {
    const gemma4_text_options how = engine_plan_options(e, engine_plan_kind_of(e, o->plan, true));
    gemma4_text text = {0};
    graph_exec *exec = NULL;
    beryl_status status = gemma4_text_build(&e->model, &e->store, &e->heap, &how, &text, error);
    if (status == BERYL_OK) status = graph_exec_open(text.g, &e->store, with, &exec, error);
    if (status == BERYL_OK) status = print_stage(e->device, o, text.g, exec, out, error);
    graph_exec_close(exec);
    graph_close(text.g);
    return status;
}

static beryl_status explain_tower(beryl_engine *e, const beryl_explain_options *o,
                                  const graph_exec_options *with, base_text *out,
                                  beryl_error *error) {
    const beryl_media_kind kind = o->plan == BERYL_PLAN_SOUND ? BERYL_SOUND : BERYL_PICTURE;
    engine_tower_plan plan = {0};
    beryl_status status = engine_tower_find(e, kind, error);
    if (status == BERYL_OK) status = engine_tower_place(e, kind, error);
    if (status == BERYL_OK)
        status = engine_tower_plan_open(e, kind, engine_tower_usual(e, kind), with, &plan, error);
    if (status == BERYL_OK) status = print_stage(e->device, o, plan.g, plan.exec, out, error);
    engine_tower_plan_close(&plan);
    return status;
}

beryl_status beryl_engine_explain(beryl_engine *e, const beryl_explain_options *options,
                                  write_fn *write, void *user, beryl_error *error) {
    beryl_explain_options o;
    if (!e || !write || !e->loaded || e->options.vocabulary_only)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_engine_explain needs an engine with a loaded model and a function to call");
    beryl_status status = options_of(options, &o, error);
    if (status != BERYL_OK) return status;
    const graph_exec_options with = {.exact = e->options.precision == BERYL_PRECISION_EXACT,
                                     .explained = true};
    base_text out;
    base_text_init(&out, &e->heap);
    status = o.plan < BERYL_PLAN_PICTURE ? explain_text(e, &o, &with, &out, error)
                                         : explain_tower(e, &o, &with, &out, error);
    if (status == BERYL_OK && out.size) write(user, out.data, out.size);
    base_text_fini(&out);
    return status;
}

/* ---- one kernel, or a graph, as text --------------------------------------------------------- */

#ifdef __wasm__

beryl_status beryl_text_explain(const char *text, size_t size, const beryl_explain_options *options,
                                write_fn *write, void *user, beryl_error *error) {
    (void)text, (void)size, (void)options, (void)write, (void)user;
    return base_fail(error, BERYL_UNSUPPORTED, "this build generates no kernels");
}

#else

beryl_status beryl_graph_explain(beryl_graph *g, const beryl_explain_options *options,
                                 write_fn *write, void *user, beryl_error *error) {
    beryl_explain_options o;
    base_text out;
    if (!g || !write || (g->stage != STAGE_BUILD && !g->explained) || g->stage == STAGE_FAILED)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_graph_explain needs a graph that is not compiled yet, and a function to call");
    beryl_status status = options_of(options, &o, error);
    if (status != BERYL_OK) return status;
    base_text_init(&out, &g->heap);
    if (g->stage == STAGE_BUILD) {
        beryl_error why = {0};
        g->explained = true;
        status = graph_api_plan(g, &why);
        if (status != BERYL_OK) {
            g->stage = STAGE_FAILED;
            g->failure = why;
            if (error) *error = why;
        }
    }
    if (status == BERYL_OK) status = print_stage(g->device, &o, g->g, g->exec, &out, error);
    if (status == BERYL_OK && out.size) write(user, out.data, out.size);
    base_text_fini(&out);
    return status;
}

static void print_ir(base_text *out, const char *what, const ir_kernel *k) {
    base_text_print(out, "%s:\n", what);
    ir_print(out, k);
}

static beryl_status print_code(base_arena *arena, const ir_kernel *k, const device_caps *caps,
                               base_text *out, beryl_error *error) {
    device_program_desc desc;
    int language = 0;
    while (!(caps->languages & DEVICE_LANGUAGE_BIT(language))) language++;
    beryl_status status = codegen_make(arena, k, (device_language)language, caps, &desc, error);
    if (status != BERYL_OK) return status;
    base_text_print(out, "%s:\n", device_language_name((device_language)language));
    base_text_add(out, desc.source, desc.source_size);
    return BERYL_OK;
}

static const beryl_log silent = {0};

/* Weights have no numbers here, and need none. */
static beryl_status explain_graph(base_heap *heap, const char *text, size_t size,
                                  const beryl_explain_options *o, base_text *out,
                                  beryl_error *error) {
    graph_exec_options with = engine_graph_options(o->precision);
    graph_store store = {0};
    graph_exec *exec = NULL;
    beryl_source source = {0}; /* never read: nothing is uploaded */
    device *d;
    with.explained = true;
    beryl_status status = engine_device_open(heap, &silent, o->device, &d, error);
    if (status != BERYL_OK) return status;
    graph *g = graph_open(heap);
    status = g ? store_init(&store, heap, d, &source, 1, error) : base_no_memory(error);
    const bool stored = g && status == BERYL_OK;
    if (status == BERYL_OK) status = graph_text_parse(text, size, g, &store, &source.size, error);
    if (status == BERYL_OK && !g->nodes.count)
        status = base_fail(error, BERYL_BAD_INPUT, "a graph without operations");
    if (status == BERYL_OK) status = store_layout(&store, 0, error);
    if (status == BERYL_OK) status = store_make(&store, error);
    if (status == BERYL_OK) status = graph_exec_open(g, &store, &with, &exec, error);
    if (status == BERYL_OK) status = print_stage(d, o, g, exec, out, error);
    graph_exec_close(exec);
    graph_close(g);
    if (stored) store_fini(&store);
    device_close(d);
    return status;
}

static beryl_status explain_kernel(base_arena *arena, const ir_kernel *k,
                                   const beryl_explain_options *o, base_text *out,
                                   beryl_error *error) {
    const ir_kernel *after;
    device *d;
    if (o->stage != BERYL_STAGE_IR && o->stage != BERYL_STAGE_CODE)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "a kernel has no graph and no plan: ask for ir or code");
    beryl_status status = engine_device_open(arena->heap, &silent, o->device, &d, error);
    if (status == BERYL_OK && !d)
        status = base_fail(error, BERYL_UNSUPPORTED, "the reference device runs no kernels");
    if (status != BERYL_OK) return status;
    const device_caps *caps = device_caps_of(d);
    ir_schedule schedule;
    /* for the loops that are marked, if any are */
    ir_schedule_default(k, caps, (const uint64_t[IR_DIM_MAX]){0}, &schedule);
    status = ir_optimise(arena, k, &schedule, &after, error);
    if (status == BERYL_OK && o->stage == BERYL_STAGE_IR)
        print_ir(out, "before the passes", k), print_ir(out, "after the passes", after);
    else if (status == BERYL_OK) status = print_code(arena, after, caps, out, error);
    device_close(d);
    return status;
}

beryl_status beryl_text_explain(const char *text, size_t size, const beryl_explain_options *options,
                                write_fn *write, void *user, beryl_error *error) {
    beryl_explain_options o;
    const ir_kernel *k;
    if (!text || !write)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_text_explain needs a text and a function to call");
    beryl_status status = options_of(options, &o, error);
    if (status != BERYL_OK) return status;
    base_heap heap;
    base_arena arena;
    base_text out;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    base_text_init(&out, &heap);
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", text[at]) && text[at]) at++;
    const bool is_kernel = size - at >= 7 && !memcmp(text + at, "kernel ", 7);
    status = is_kernel ? ir_parse(&arena, text, size, &k, error)
                       : explain_graph(&heap, text, size, &o, &out, error);
    if (status == BERYL_OK && is_kernel) status = explain_kernel(&arena, k, &o, &out, error);
    if (status == BERYL_OK && out.failed) status = base_no_memory(error);
    if (status == BERYL_OK && out.size) write(user, out.data, out.size);
    base_text_fini(&out);
    base_arena_fini(&arena);
    return status;
}

#endif
