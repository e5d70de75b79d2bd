/* towers.c - the towers that make soft tokens of pictures and sound: found in the files, loaded
 * when they are first needed, let go again.
 *
 * A tower's weights lie in a store of its own, on the engine's device. What may be used of the
 * device's memory holds for the model and its towers together: where a second tower has no room,
 * one that nothing encodes with makes room for it. */
#include "engine/towers.h"

#include "base/error.h"

#include <string.h>

enum { BUDGET = 280, FRAMES_MAX = 3000 /* of a clip of 30 s */ };

engine_tower *engine_tower_of(const beryl_engine *e, beryl_media_kind kind) {
    return &e->towers->tower[kind == BERYL_SOUND];
}

void engine_tower_plan_close(engine_tower_plan *p) {
    graph_exec_close(p->exec);
    graph_close(p->g);
    *p = (engine_tower_plan){0};
}

/* Its weights are given back; what the file says of it is read again where it is needed again. */
static void unload(engine_tower *t) {
    engine_tower_plan_close(&t->plan);
    store_fini(&t->store);
    base_arena_fini(&t->arena);
    t->stage = TOWER_NONE;
}

void engine_towers_close(beryl_engine *e) {
    engine_towers *t = e->towers;
    if (!t) return;
    for (int i = 0; i < 2; i++) unload(&t->tower[i]);
    base_arena_fini(&t->arena);
    base_heap_give(&e->heap, t, sizeof *t);
    e->towers = NULL;
}

static const format_gguf *file_of(const beryl_engine *e) {
    return e->mmproj ? e->mmproj : e->gguf;
}

/* Keys and tensors of one tower, into its store. */
static beryl_status add(beryl_engine *e, bool hears, beryl_error *error) {
    engine_towers *t = e->towers;
    engine_tower *to = &t->tower[hears];
    const format_gguf *file = file_of(e);
    const uint32_t d = e->model.config.n_embd;
    base_arena_init(&to->arena, &e->heap);
    beryl_status status =
        store_init(&to->store, &e->heap, e->device, t->sources, t->n_source, error);
    if (status == BERYL_OK)
        status = hears ? gemma4_audio_add(file, d, &to->arena, &to->store, &t->audio, error)
                       : gemma4_vision_add(file, d, &to->arena, &to->store, &t->vision, error);
    to->there = status == BERYL_OK;
    to->stage = TOWER_ADDED;
    return status == BERYL_NOT_FOUND ? BERYL_OK : status;
}

beryl_status engine_towers_open(beryl_engine *e, beryl_error *error) {
    if (e->towers) return BERYL_OK;
    engine_towers *t = e->towers = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_no_memory(error);
    base_arena_init(&t->arena, &e->heap);
    beryl_status status = BERYL_OK;
    const format_gguf *file = file_of(e);
    t->n_source = (uint32_t)format_gguf_n_file(file);
    t->sources = base_arena_take(&t->arena, t->n_source, sizeof *t->sources);
    if (!t->sources) status = base_no_memory(error);
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_source; i++)
        t->sources[i] = *format_gguf_source(file, i);
    for (int i = 0; status == BERYL_OK && i < 2; i++) status = add(e, i, error);
    if (status != BERYL_OK) engine_towers_close(e);
    return status;
}

beryl_status engine_tower_find(beryl_engine *e, beryl_media_kind kind, beryl_error *error) {
    const beryl_status status = engine_towers_open(e, error);
    if (status != BERYL_OK || engine_tower_of(e, kind)->there) return status;
    return base_fail(error, BERYL_UNSUPPORTED,
                     kind == BERYL_SOUND ? "this model has no tower for sound"
                                         : "this model has no tower for pictures");
}

uint32_t engine_tower_usual(const beryl_engine *e, beryl_media_kind kind) {
    const engine_towers *t = e->towers;
    if (kind == BERYL_SOUND) return t->audio.n_layer ? FRAMES_MAX : FRAMES_MAX / 4;
    return t->vision.n_soft ? t->vision.n_soft : BUDGET;
}

gemma4_media engine_media_of(const beryl_engine *e) {
    if (e->model.config.n_per_layer) return GEMMA4_MEDIA_CAUSAL;
    const engine_towers *t = e->towers;
    return t && t->tower[0].there && !t->vision.n_layer ? GEMMA4_MEDIA_ALL : GEMMA4_MEDIA_SLIDING;
}

/* ---- on the device --------------------------------------------------------------------------- */

/* Bytes in use on the device, and how many may be; *most 0: nobody knows. */
static uint64_t memory_used(const beryl_engine *e, uint64_t *most) {
    device_stats used = {0};
    *most = e->options.memory;
    if (!e->device) return 0;
    if (!*most) *most = device_caps_of(e->device)->memory;
    device_stats_of(e->device, &used);
    return used.buffer_bytes;
}

/* The other tower makes room, if nothing encodes with it. */
static bool unload_other(beryl_engine *e, beryl_media_kind kind) {
    engine_tower *other = engine_tower_of(e, kind == BERYL_SOUND ? BERYL_PICTURE : BERYL_SOUND);
    if (other->users || other->stage < TOWER_LOADED) return false;
    unload(other);
    return true;
}

/* Buffers for the weights. What a layout has refused is added anew. */
static beryl_status place(beryl_engine *e, beryl_media_kind kind, beryl_error *error) {
    engine_tower *to = engine_tower_of(e, kind);
    uint64_t most, used = memory_used(e, &most);
    beryl_status status = store_layout(&to->store, most > used ? most - used : most > 0, error);
    if (status == BERYL_NO_DEVICE_MEMORY && unload_other(e, kind)) {
        unload(to);
        *error = (beryl_error){0};
        used = memory_used(e, &most);
        status = add(e, kind == BERYL_SOUND, error);
        if (status == BERYL_OK)
            status = store_layout(&to->store, most > used ? most - used : most > 0, error);
    }
    return status == BERYL_OK ? store_make(&to->store, error) : status;
}

/* Is there too much on the device with what a plan computes in? */
static beryl_status check_room(beryl_engine *e, beryl_media_kind kind, beryl_error *error) {
    uint64_t most, used = memory_used(e, &most);
    if (most && used > most && unload_other(e, kind)) used = memory_used(e, &most);
    if (!most || used <= most) return BERYL_OK;
    return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                     "%s needs %llu MB more device memory than may be used",
                     kind == BERYL_SOUND ? "sound" : "a picture",
                     (unsigned long long)((used - most + (1 << 20) - 1) >> 20));
}

beryl_status engine_tower_plan_open(beryl_engine *e, beryl_media_kind kind, uint32_t bound,
                                    const graph_exec_options *how, engine_tower_plan *p,
                                    beryl_error *error) {
    engine_towers *t = e->towers;
    graph_store *store = &engine_tower_of(e, kind)->store;
    beryl_status status;
    *p = (engine_tower_plan){.bound = bound};
    if (kind == BERYL_SOUND) {
        status = gemma4_audio_build(&t->audio, store, &e->heap, bound, &p->listens, error);
        p->g = p->listens.g;
        p->soft = p->listens.soft;
    } else {
        status = gemma4_vision_build(&t->vision, store, &e->heap, bound, &p->sees, error);
        p->g = p->sees.g;
        p->soft = p->sees.soft;
    }
    return status == BERYL_OK ? graph_exec_open(p->g, store, how, &p->exec, error) : status;
}

/* A plan for so much, where there is none for as much yet. */
static beryl_status plan(beryl_engine *e, beryl_media_kind kind, uint32_t bound,
                         beryl_error *error) {
    engine_tower *to = engine_tower_of(e, kind);
    if (to->plan.exec && to->plan.bound >= bound) return BERYL_OK;
    engine_tower_plan_close(&to->plan);
    to->stage = TOWER_LOADED;
    const graph_exec_options how = {.exact = e->options.precision == BERYL_PRECISION_EXACT};
    beryl_status status = engine_tower_plan_open(e, kind, bound, &how, &to->plan, error);
    if (status == BERYL_OK) status = check_room(e, kind, error);
    if (status != BERYL_OK) engine_tower_plan_close(&to->plan);
    return status;
}

beryl_status engine_tower_place(beryl_engine *e, beryl_media_kind kind, beryl_error *error) {
    engine_tower *to = engine_tower_of(e, kind);
    beryl_status status = BERYL_OK;
    if (to->stage == TOWER_NONE) status = add(e, kind == BERYL_SOUND, error);
    if (status == BERYL_OK && to->stage == TOWER_ADDED) {
        status = place(e, kind, error);
        if (status == BERYL_OK) to->stage = TOWER_PLACED;
        else unload(to); /* the next task tries again */
    }
    return status;
}

beryl_status engine_tower_load(engine_tower *t, beryl_error *error) {
    if (t->stage != TOWER_PLACED) return BERYL_OK;
    const beryl_status status = store_upload_step(&t->store, error);
    if (status == BERYL_OK) t->stage = TOWER_LOADED;
    return status;
}

beryl_status engine_tower_step(beryl_task *task, beryl_media_kind kind, uint32_t bound) {
    beryl_engine *e = task->engine;
    engine_tower *to = engine_tower_of(e, kind);
    beryl_status status = engine_tower_place(e, kind, &task->error);
    if (status == BERYL_OK) status = engine_tower_load(to, &task->error);
    if (status == BERYL_EVENT)
        return task_progress(
            task, kind == BERYL_SOUND ? "loading the audio tower" : "loading the vision tower",
            to->store.upload_done, to->store.upload_total);
    if (status == BERYL_OK) status = plan(e, kind, bound, &task->error);
    if (status == BERYL_OK) status = graph_exec_ready(to->plan.exec, &task->error);
    if (status == BERYL_OK) to->stage = TOWER_READY;
    return status;
}

/* ---- let go ---------------------------------------------------------------------------------- */

void engine_towers_leave(beryl_engine *e) {
    for (int i = 0; e->towers && i < 2; i++)
        if (!e->towers->tower[i].users) unload(&e->towers->tower[i]);
}

void beryl_engine_trim(beryl_engine *e) {
    if (!e) return;
    engine_towers_leave(e);
    if (e->loaded && !e->n_flight && !e->prompt.n_row && !e->step.n_row) engine_plans_close(e);
}
