/* probe.c - a plan over made-up tokens, or noise. */
#include "engine/probe.h"
#include "base/error.h"
#include "base/thread.h"
#include "engine/media.h"

#include <string.h>

enum { FIRST_TOKEN = 1000, DOWN = 8 /* soft tokens of a picture */ };

beryl_status probe_allowed(const beryl_engine *e, beryl_error *error) {
    if (e->n_session || e->n_flight)
        return base_fail(error, BERYL_MISUSE, "plans are not timed while sessions are open");
    if (!e->device)
        return base_fail(
            error, BERYL_UNSUPPORTED,
            "the reference device runs the graph node by node: it has no plan to time");
    if (!strcmp(device_caps_of(e->device)->backend, "dummy"))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the dummy device computes nothing that could be timed");
    return BERYL_OK;
}

beryl_status probe_open(beryl_engine *e, const gemma4_text_options *how, uint32_t depth,
                        const graph_exec_options *with, probe *p, beryl_error *error) {
    *p = (probe){.e = e,
                 .n = how->n_token,
                 .depth = depth,
                 .decode = how->decode,
                 .output = how->decode || how->n_output};
    beryl_status status = probe_allowed(e, error);
    if (status != BERYL_OK) return status;
    if ((uint64_t)depth + (how->decode ? 1 : how->n_token) > e->model.context ||
        (how->near && depth >= how->near))
        return base_fail(error, BERYL_BAD_INPUT, "%u tokens after %u: the context holds %u",
                         how->n_token, depth, e->model.context);
    status = gemma4_text_build(&e->model, &e->store, &e->heap, how, &p->text, error);
    if (status == BERYL_OK) status = graph_exec_open(p->text.g, &e->store, with, &p->exec, error);
    if (status == BERYL_OK) probe_fill(p);
    return status;
}

static beryl_status make_noise(beryl_engine *e, beryl_media_kind kind, beryl_media **out,
                               beryl_error *error) {
    const uint32_t unit = gemma4_vision_unit(&e->towers->vision),
                   budget = engine_tower_usual(e, kind);
    beryl_media_desc desc = {.size = sizeof desc, .kind = kind, .budget = budget, .resized = true};
    const uint32_t down = budget % DOWN ? 1 : DOWN;
    const size_t n = kind == BERYL_SOUND ? GEMMA4_AUDIO_SAMPLES : (size_t)3 * unit * unit * budget,
                 size = kind == BERYL_SOUND ? n * sizeof(float) : n;
    char *noise = base_heap_take(&e->heap, size);
    if (!noise) return base_no_memory(error);
    base_random random = {.state = 1};
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = (uint32_t)base_random_next(&random) & 0xff;
        if (kind == BERYL_SOUND) ((float *)noise)[i] = (float)x / 256 - 0.5f;
        else noise[i] = (char)x;
    }
    desc.width = unit * (budget / down);
    desc.height = unit * down;
    desc.n_sample = n;
    if (kind == BERYL_SOUND) desc.samples = (const float *)noise;
    else desc.rgb = (const uint8_t *)noise;
    const beryl_status status = beryl_media_open(e, &desc, out, error);
    base_heap_give(&e->heap, noise, size);
    return status;
}

beryl_status probe_tower_open(beryl_engine *e, beryl_media_kind kind,
                              const graph_exec_options *with, probe *p, beryl_error *error) {
    *p = (probe){.e = e};
    beryl_status status = probe_allowed(e, error);
    if (status == BERYL_OK) status = engine_tower_find(e, kind, error);
    if (status == BERYL_OK) status = engine_tower_place(e, kind, error);
    if (status == BERYL_OK) status = make_noise(e, kind, &p->media, error);
    if (status != BERYL_OK) return status;
    engine_tower_of(e, kind)->users++;
    status = engine_tower_plan_open(e, kind, engine_tower_usual(e, kind), with, &p->tower, error);
    p->exec = p->tower.exec;
    return status;
}

static void tower_close(probe *p) {
    engine_tower_of(p->e, p->media->kind)->users--;
    engine_tower_plan_close(&p->tower);
    beryl_media_close(p->media);
}

void probe_close(probe *p) {
    if (p->exec && p->ticket) device_wait(p->e->device, p->ticket, NULL);
    if (p->media) {
        tower_close(p);
    } else {
        graph_exec_close(p->exec);
        graph_close(p->text.g);
    }
    *p = (probe){0};
}

beryl_status probe_ready(probe *p, beryl_error *error) {
    beryl_status status = BERYL_EVENT;
    while (p->media && status == BERYL_EVENT)
        status = engine_tower_load(engine_tower_of(p->e, p->media->kind), error);
    return p->media && status != BERYL_OK ? status : graph_exec_ready(p->exec, error);
}

void probe_fill(const probe *p) {
    if (p->media) return; /* when it is submitted */
    const gemma4_text *t = &p->text;
    graph_exec *exec = p->exec;
    int32_t *slot = graph_exec_input(exec, t->slot), *pos = graph_exec_input(exec, t->pos);
    for (uint32_t i = 0; i < p->n; i++) {
        slot[i] = p->decode ? (int32_t)i : 0;
        pos[i] = (int32_t)(p->decode ? p->depth : p->depth + i);
        if (t->tokens)
            ((int32_t *)graph_exec_input(exec, t->tokens))[i] =
                (int32_t)((FIRST_TOKEN + i) % p->e->model.config.n_vocab);
    }
    for (int k = 0; k < 2; k++)
        gemma4_angles(&p->e->model, k, pos, p->n, graph_exec_input(exec, t->angles[k]));
    if (!t->output_rows) return;
    *(int32_t *)graph_exec_input(exec, t->output_rows) = (int32_t)p->n - 1;
    *(int32_t *)graph_exec_input(exec, t->output_slot) = 0;
    *(int32_t *)graph_exec_input(exec, t->output_pos) = pos[p->n - 1];
    for (int k = 0; k < 2; k++)
        gemma4_angles(&p->e->model, k, pos + p->n - 1, 1,
                      graph_exec_input(exec, t->output_angles[k]));
}

beryl_status probe_submit(probe *p, beryl_error *error) {
    if (p->media) return media_submit(p->media, &p->tower, &p->ticket, error);
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    const gemma4_text *t = &p->text;
    extents[t->token_extent] = p->n;
    if (t->output_extent && t->output_extent != t->token_extent) extents[t->output_extent] = 1;
    return graph_exec_submit(p->exec, extents, &t->chosen, t->chosen != 0, &p->ticket, error);
}

beryl_status probe_wait(probe *p, beryl_error *error) {
    return device_wait(p->e->device, p->ticket, error);
}

beryl_status probe_read(probe *p, beryl_error *error) {
    const void *data;
    beryl_error none = {0};
    const beryl_status status =
        graph_exec_fetched(p->exec, p->ticket, 0, &data, p->text.chosen ? error : &none);
    return p->text.chosen ? status : BERYL_OK; /* without results it is for the times alone */
}
