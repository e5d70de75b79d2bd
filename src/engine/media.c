/* media.c - pictures and sound: the towers that make soft tokens of them, and where these stand in
 * prompts.
 *
 * A tower is loaded when it is first needed: its weights lie in a store of its own, on the engine's
 * device. A soft token stands in a session's timeline as a number below 0 that is made from the
 * content of its picture or clip and from its place in it, so that what two prompts share is found
 * as for any other token. */
#include "base/error.h"
#include "engine/engine.h"
#include "media/resize.h"
#include "media/sound.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUDGET = 280,
    BUDGET_MAX = 1120,
    SIDE_MAX = 65535,
    PIXELS_MAX = 1 << 28,
    FRAMES_MAX = 3000 /* of a clip of 30 s */
};

typedef struct tower {
    enum { TOWER_NONE, TOWER_ADDED, TOWER_LOADED, TOWER_READY } stage;
    bool there; /* the file has it */
    graph_store store;
    graph *g;
    graph_exec *exec;
    graph_value soft;
    uint32_t bound; /* of its plan: soft tokens of a picture, frames of a clip */
} tower;

struct engine_towers {
    base_arena arena;
    beryl_source *sources;
    uint32_t n_source;
    gemma4_vision vision;
    gemma4_vision_graph sees;
    gemma4_audio audio;
    gemma4_audio_graph listens;
    tower tower[2]; /* pictures, sound */
};

static tower *tower_of(engine_towers *t, beryl_media_kind kind) {
    return &t->tower[kind == BERYL_SOUND];
}

/* ---- towers ---------------------------------------------------------------------------------- */

static void tower_unplan(tower *t) {
    graph_exec_close(t->exec);
    graph_close(t->g);
    t->exec = NULL;
    t->g = NULL;
}

void engine_towers_close(beryl_engine *e) {
    engine_towers *t = e->towers;
    if (!t) return;
    for (int i = 0; i < 2; i++) {
        tower_unplan(&t->tower[i]);
        store_fini(&t->tower[i].store);
    }
    base_arena_fini(&t->arena);
    base_heap_give(&e->heap, t, sizeof *t);
    e->towers = NULL;
}

static const format_gguf *towers_file(const beryl_engine *e) {
    return e->mmproj ? e->mmproj : e->gguf;
}

/* Keys and tensors of one tower, into its store. NOT_FOUND is no error: it is not there. */
static beryl_status tower_add(beryl_engine *e, bool hears, beryl_error *error) {
    engine_towers *t = e->towers;
    tower *to = &t->tower[hears];
    const format_gguf *file = towers_file(e);
    const uint32_t d = e->model.config.n_embd;
    beryl_status status =
        store_init(&to->store, &e->heap, e->device, t->sources, t->n_source, error);
    if (status == BERYL_OK)
        status = hears ? gemma4_audio_add(file, d, &t->arena, &to->store, &t->audio, error)
                       : gemma4_vision_add(file, d, &t->arena, &to->store, &t->vision, error);
    to->there = status == BERYL_OK;
    to->stage = TOWER_ADDED;
    return status == BERYL_NOT_FOUND ? BERYL_OK : status;
}

static beryl_status towers_open(beryl_engine *e, beryl_error *error) {
    if (e->towers) return BERYL_OK;
    engine_towers *t = e->towers = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    base_arena_init(&t->arena, &e->heap);
    beryl_status status = BERYL_OK;
    const format_gguf *file = towers_file(e);
    t->n_source = (uint32_t)format_gguf_n_file(file);
    t->sources = base_arena_take(&t->arena, t->n_source, sizeof *t->sources);
    if (!t->sources) status = base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_source; i++)
        t->sources[i] = *format_gguf_source(file, i);
    for (int i = 0; status == BERYL_OK && i < 2; i++) status = tower_add(e, i, error);
    if (status != BERYL_OK) engine_towers_close(e);
    return status;
}

gemma4_media engine_media_of(const beryl_engine *e) {
    if (e->model.config.n_per_layer) return GEMMA4_MEDIA_CAUSAL;
    const engine_towers *t = e->towers;
    return t && t->tower[0].there && !t->vision.n_layer ? GEMMA4_MEDIA_ALL : GEMMA4_MEDIA_SLIDING;
}

/* A plan for so much, where there is none for as much yet. */
static beryl_status tower_plan(beryl_engine *e, beryl_media_kind kind, uint32_t bound,
                               beryl_error *error) {
    engine_towers *t = e->towers;
    tower *to = tower_of(t, kind);
    if (to->exec && to->bound >= bound) return BERYL_OK;
    tower_unplan(to);
    to->stage = TOWER_LOADED;
    beryl_status status;
    if (kind == BERYL_SOUND) {
        status = gemma4_audio_build(&t->audio, &to->store, &e->heap, bound, &t->listens, error);
        to->g = t->listens.g;
        to->soft = t->listens.soft;
    } else {
        status = gemma4_vision_build(&t->vision, &to->store, &e->heap, bound, &t->sees, error);
        to->g = t->sees.g;
        to->soft = t->sees.soft;
    }
    const graph_exec_options how = {.exact = e->options.precision == BERYL_PRECISION_EXACT};
    if (status == BERYL_OK) status = graph_exec_open(to->g, &to->store, &how, &to->exec, error);
    to->bound = bound;
    if (status != BERYL_OK) tower_unplan(to);
    return status;
}

/* The next step on the way to a tower that runs. */
static beryl_status tower_step(beryl_task *task, beryl_media_kind kind, uint32_t bound) {
    beryl_engine *e = task->engine;
    tower *to = tower_of(e->towers, kind);
    beryl_status status = BERYL_OK;
    if (to->stage == TOWER_ADDED && !to->store.buffers.count) {
        status = store_layout(&to->store, e->options.memory, &task->error);
        if (status == BERYL_OK) status = store_make(&to->store, &task->error);
        if (status != BERYL_OK) return status;
    }
    if (to->stage == TOWER_ADDED) {
        status = store_upload_step(&to->store, &task->error);
        if (status == BERYL_EVENT)
            return task_progress(
                task, kind == BERYL_SOUND ? "loading the audio tower" : "loading the vision tower",
                to->store.upload_done, to->store.upload_total);
        if (status != BERYL_OK) return status;
        to->stage = TOWER_LOADED;
    }
    status = tower_plan(e, kind, bound, &task->error);
    if (status == BERYL_OK) status = graph_exec_ready(to->exec, &task->error);
    if (status == BERYL_OK) to->stage = TOWER_READY;
    return status;
}

/* ---- media ----------------------------------------------------------------------------------- */

static void forget_content(beryl_media *m) {
    base_heap *heap = &m->engine->heap;
    base_heap_give(heap, m->rgb, (size_t)m->width * m->height * 3);
    base_heap_give(heap, m->samples, m->n_sample * sizeof *m->samples);
    m->rgb = NULL;
    m->samples = NULL;
}

static void drop(beryl_media *m) {
    if (!m || --m->users) return;
    base_heap *heap = &m->engine->heap;
    forget_content(m);
    base_heap_give(heap, m->soft,
                   (size_t)m->n_soft * m->engine->model.config.n_embd * sizeof *m->soft);
    base_heap_give(heap, m, sizeof *m);
}

void beryl_media_close(beryl_media *m) {
    drop(m);
}

/* What a picture becomes, in its own memory. */
static beryl_status take_picture(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    const gemma4_vision *v = &m->engine->towers->vision;
    const uint32_t unit = gemma4_vision_unit(v), budget = d->budget   ? d->budget
                                                          : v->n_soft ? v->n_soft
                                                                      : BUDGET;
    if (!d->rgb || !d->width || !d->height)
        return base_fail(error, BERYL_MISUSE, "a picture without pixels");
    if (d->width > SIDE_MAX || d->height > SIDE_MAX || (uint64_t)d->width * d->height > PIXELS_MAX)
        return base_fail(error, BERYL_BAD_INPUT, "a picture of %u x %u pixels is too large",
                         d->width, d->height);
    if (budget > BUDGET_MAX)
        return base_fail(error, BERYL_BAD_INPUT, "a budget of %u soft tokens: at most %d", budget,
                         BUDGET_MAX);
    m->width = d->width;
    m->height = d->height;
    if (!d->resized) media_fit(d->width, d->height, unit, budget, &m->width, &m->height);
    else if (d->width % unit || d->height % unit)
        return base_fail(error, BERYL_BAD_INPUT,
                         "a picture of %u x %u pixels that is taken as it is: its sides are no "
                         "multiples of %u",
                         d->width, d->height, unit);
    const uint64_t across = m->width / unit, down = m->height / unit;
    const uint32_t most = v->n_position / v->pool;
    if (across * down > budget || across > most || down > most)
        return base_fail(error, BERYL_BAD_INPUT,
                         "a picture of %u x %u pixels: more than %u soft tokens, or more than %u "
                         "in a row",
                         m->width, m->height, budget, most);
    m->n_soft = (uint32_t)(across * down);
    const size_t size = (size_t)m->width * m->height * 3;
    m->rgb = base_heap_take(&m->engine->heap, size);
    beryl_status status = m->rgb ? BERYL_OK : BERYL_NO_MEMORY;
    if (status == BERYL_OK && m->width == d->width && m->height == d->height)
        memcpy(m->rgb, d->rgb, size);
    else if (status == BERYL_OK)
        status = media_resize(&m->engine->heap, d->rgb, d->width, d->height, m->rgb, m->width,
                              m->height);
    if (status != BERYL_OK) return base_fail(error, status, "out of host memory");
    m->hash = base_hash(m->rgb, size, m->width);
    return BERYL_OK;
}

static beryl_status take_samples(beryl_media *m, const float *samples, size_t n,
                                 beryl_error *error) {
    const gemma4_audio *a = &m->engine->towers->audio;
    if (!samples) return base_fail(error, BERYL_MISUSE, "sound without samples");
    if (n > GEMMA4_AUDIO_SAMPLES)
        return base_fail(error, BERYL_BAD_INPUT,
                         "sound of %zu samples: at most %d (30 s at 16 kHz)", n,
                         GEMMA4_AUDIO_SAMPLES);
    m->n_sample = (uint32_t)n;
    m->n_soft = gemma4_audio_soft(a, gemma4_audio_frames(a, m->n_sample));
    if (!m->n_soft)
        return base_fail(error, BERYL_BAD_INPUT, "sound of %zu samples is too short", n);
    const size_t size = n * sizeof *m->samples;
    m->samples = base_heap_take(&m->engine->heap, size);
    if (!m->samples) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (size_t i = 0; i < n; i++) {
        const float x = samples[i];
        m->samples[i] = x > 1 ? 1 : x >= -1 ? x : x < -1 ? -1 : 0; /* NaN: silence */
    }
    m->hash = base_hash(m->samples, size, 1);
    return BERYL_OK;
}

static beryl_status take_sound(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    base_heap *heap = &m->engine->heap;
    if (!d->wav && (!d->rate || d->rate == GEMMA4_AUDIO_RATE))
        return take_samples(m, d->samples, d->n_sample, error);
    if (!d->wav && (!d->samples || d->rate < MEDIA_RATE_MIN || d->rate > MEDIA_RATE_MAX))
        return base_fail(error, BERYL_MISUSE, "%s at %u samples a second: %d to %d",
                         d->samples ? "sound" : "sound without samples", d->rate, MEDIA_RATE_MIN,
                         MEDIA_RATE_MAX);
    media_sound sound = {.samples = (float *)(uintptr_t)d->samples, d->n_sample, d->rate},
                at_rate = {0};
    beryl_status status =
        d->wav ? media_wav_read(heap, d->wav, d->wav_size, &sound, error) : BERYL_OK;
    const bool other = status == BERYL_OK && sound.rate != GEMMA4_AUDIO_RATE;
    const uint64_t n = sound.rate ? (uint64_t)sound.n * GEMMA4_AUDIO_RATE / sound.rate : 0;
    if (status == BERYL_OK && n > GEMMA4_AUDIO_SAMPLES)
        status = base_fail(error, BERYL_BAD_INPUT, "sound of %.1f s: at most 30 s",
                           (double)n / GEMMA4_AUDIO_RATE);
    if (status == BERYL_OK && other)
        status = media_resample(heap, &sound, GEMMA4_AUDIO_RATE, &at_rate, error);
    const media_sound *given = other ? &at_rate : &sound;
    if (status == BERYL_OK)
        status =
            take_samples(m, given->samples,
                         given->n < GEMMA4_AUDIO_SAMPLES ? given->n : GEMMA4_AUDIO_SAMPLES, error);
    base_heap_give(heap, at_rate.samples, at_rate.n * sizeof *at_rate.samples);
    if (d->wav) base_heap_give(heap, sound.samples, sound.n * sizeof *sound.samples);
    return status;
}

beryl_status beryl_media_open(beryl_engine *e, const beryl_media_desc *desc, beryl_media **out,
                              beryl_error *error) {
    if (!e || !desc || !out || desc->size < sizeof *desc ||
        (desc->kind != BERYL_PICTURE && desc->kind != BERYL_SOUND))
        return base_fail(error, BERYL_MISUSE,
                         "beryl_media_open needs an engine, a picture or sound, its size, and a "
                         "place for the media");
    *out = NULL;
    if (!e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE, "the engine has no model loaded");
    beryl_status status = towers_open(e, error);
    if (status != BERYL_OK) return status;
    if (!tower_of(e->towers, desc->kind)->there)
        return base_fail(error, BERYL_UNSUPPORTED,
                         desc->kind == BERYL_SOUND ? "this model has no tower for sound"
                                                   : "this model has no tower for pictures");
    beryl_media *m = base_heap_take(&e->heap, sizeof *m);
    if (!m) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    *m = (beryl_media){.engine = e, .users = 1, .kind = desc->kind};
    status = m->kind == BERYL_SOUND ? take_sound(m, desc, error) : take_picture(m, desc, error);
    if (status == BERYL_OK) *out = m;
    else drop(m);
    return status;
}

void beryl_media_soft(const beryl_media *m, const float **soft, size_t *n_token, size_t *n_embd) {
    if (soft) *soft = m ? m->soft : NULL;
    if (n_token) *n_token = m ? m->n_soft : 0;
    if (n_embd) *n_embd = m ? m->engine->model.config.n_embd : 0;
}

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct encoding { /* of a task */
    beryl_media *media;
    device_ticket ticket;
    bool submitted;
} encoding;

static void *input_of(const tower *to, graph_value v) {
    return v ? graph_exec_input(to->exec, v) : NULL;
}

static beryl_status submit(beryl_engine *e, encoding *c, beryl_error *error) {
    engine_towers *t = e->towers;
    const beryl_media *m = c->media;
    const tower *to = tower_of(t, m->kind);
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    if (m->kind == BERYL_SOUND) {
        const gemma4_audio_graph *g = &t->listens;
        extents[g->extent] = gemma4_audio_frames(&t->audio, m->n_sample);
        if (gemma4_audio_fill(&t->audio, &e->heap, m->samples, m->n_sample,
                              input_of(to, g->frames)) != BERYL_OK)
            return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
        if (g->mask) gemma4_audio_mask(m->n_soft, input_of(to, g->mask));
        if (g->distance) gemma4_audio_distances(&t->audio, input_of(to, g->distance));
    } else {
        const gemma4_vision_graph *g = &t->sees;
        extents[g->extent] = m->n_soft;
        gemma4_vision_fill(&t->vision, m->rgb, m->width, m->height, input_of(to, g->pixels),
                           input_of(to, g->columns), input_of(to, g->rows),
                           input_of(to, g->angles));
    }
    return graph_exec_submit(to->exec, extents, &to->soft, 1, &c->ticket, error);
}

static beryl_status take_soft(beryl_engine *e, encoding *c, beryl_error *error) {
    beryl_media *m = c->media;
    const void *data = NULL;
    const size_t size = (size_t)m->n_soft * e->model.config.n_embd * sizeof *m->soft;
    beryl_status status =
        graph_exec_fetched(tower_of(e->towers, m->kind)->exec, c->ticket, 0, &data, error);
    if (status != BERYL_OK) return status;
    m->soft = base_heap_take(&e->heap, size);
    if (!m->soft) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    memcpy(m->soft, data, size);
    forget_content(m);
    return BERYL_OK;
}

static beryl_status encode_step(beryl_task *task) {
    beryl_engine *e = task->engine;
    encoding *c = task->state;
    beryl_media *m = c->media;
    beryl_status status = BERYL_OK;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    if (m->soft) return BERYL_OK;
    if (!c->submitted) {
        const uint32_t usual = e->towers->vision.n_soft ? e->towers->vision.n_soft : BUDGET,
                       bound = m->kind == BERYL_SOUND
                                   ? (e->towers->audio.n_layer ? FRAMES_MAX : FRAMES_MAX / 4)
                               : m->n_soft > usual ? m->n_soft
                                                   : usual;
        status = tower_step(task, m->kind, bound);
        if (status == BERYL_OK) status = submit(e, c, &task->error);
        if (status != BERYL_OK) return status;
        c->submitted = true;
    }
    device_ticket done = UINT64_MAX;
    if (e->device) status = device_poll(e->device, &done, &task->error);
    if (status != BERYL_OK) return status;
    return done < c->ticket ? BERYL_PENDING : take_soft(e, c, &task->error);
}

static void encode_close(beryl_task *task) {
    encoding *c = task->state;
    if (!c) return;
    if (c->submitted && !c->media->soft && task->engine->device)
        device_wait(task->engine->device, c->ticket, NULL);
    drop(c->media);
    base_heap_give(&task->engine->heap, c, sizeof *c);
}

beryl_status beryl_media_encode(beryl_media *m, beryl_task **out, beryl_error *error) {
    if (!m || !out)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_media_encode needs media and a place for the task");
    beryl_engine *e = m->engine;
    encoding *c = base_heap_take(&e->heap, sizeof *c);
    if (!c) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    const beryl_status status = task_open(e, NULL, encode_step, out, error);
    if (status != BERYL_OK) {
        base_heap_give(&e->heap, c, sizeof *c);
        return status;
    }
    c->media = m;
    m->users++;
    (*out)->state = c;
    (*out)->close = encode_close;
    return BERYL_OK;
}

/* ---- in prompts ------------------------------------------------------------------------------ */

void session_media_clear(beryl_session *s) {
    for (size_t i = 0; i < s->spans.count; i++) drop(s->spans.data[i].media);
    for (size_t i = 0; i < s->media.count; i++) drop(s->media.data[i]);
    base_vec_fini(&s->engine->heap, &s->spans);
    base_vec_fini(&s->engine->heap, &s->media);
}

beryl_status beryl_session_media(beryl_session *s, beryl_media *const *media, size_t n,
                                 beryl_error *error) {
    if (!s || (n && !media))
        return base_fail(error, BERYL_MISUSE, "beryl_session_media needs a session and media");
    if (s->task) return base_fail(error, BERYL_MISUSE, "a task is running on this session");
    for (size_t i = 0; i < n; i++)
        if (!media[i] || media[i]->engine != s->engine || !media[i]->soft)
            return base_fail(error, BERYL_MISUSE, "media %zu is not encoded, or another engine's",
                             i);
    if (!base_vec_reserve(&s->engine->heap, &s->media, n))
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (size_t i = 0; i < n; i++) media[i]->users++;
    for (size_t i = 0; i < s->media.count; i++) drop(s->media.data[i]);
    s->media.count = n;
    if (n) memcpy(s->media.data, media, n * sizeof *media);
    return BERYL_OK;
}

static int32_t soft_id(const beryl_session *s, beryl_media_kind kind) {
    return text_special(s->engine->tokenizer,
                        kind == BERYL_SOUND ? TEXT_SPECIAL_AUDIO_SOFT : TEXT_SPECIAL_IMAGE_SOFT);
}

/* What token i of media is in a timeline. */
static int32_t content_id(const beryl_media *m, uint32_t i) {
    const uint64_t mixed =
        (m->hash ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return -1 - (int32_t)(mixed >> 33);
}

beryl_status session_media_place(beryl_session *s, const int32_t *tokens, size_t n, int32_t *out,
                                 beryl_error *error) {
    const int32_t ids[] = {soft_id(s, BERYL_PICTURE), soft_id(s, BERYL_SOUND)};
    size_t used = 0;
    for (size_t i = 0; i < s->spans.count; i++) drop(s->spans.data[i].media);
    s->spans.count = 0;
    memcpy(out, tokens, n * sizeof *out);
    if (!base_vec_reserve(&s->engine->heap, &s->spans, s->media.count))
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (size_t i = 0, end; s->media.count && i < n; i = end) {
        end = i + 1;
        if (tokens[i] != ids[0] && tokens[i] != ids[1]) continue;
        while (end < n && tokens[end] == tokens[i]) end++;
        beryl_media *m = used < s->media.count ? s->media.data[used] : NULL;
        if (!m || soft_id(s, m->kind) != tokens[i] || m->n_soft != end - i)
            return base_fail_at(error, BERYL_BAD_INPUT, i,
                                "%zu soft tokens at %zu, where media %zu %s", end - i, i, used,
                                m ? "is of another kind or length" : "is not there");
        m->users++;
        s->spans.data[s->spans.count++] = (session_span){i, m};
        for (uint32_t k = 0; k < m->n_soft; k++) out[i + k] = content_id(m, k);
        used++;
    }
    if (used != s->media.count)
        return base_fail(error, BERYL_BAD_INPUT, "%zu pictures and clips for %zu places",
                         s->media.count, used);
    if (n && out[n - 1] < 0)
        return base_fail(error, BERYL_BAD_INPUT, "a prompt that ends in a picture or in sound");
    return BERYL_OK;
}

beryl_status session_media_expand(const beryl_session *s, text_ids *ids, beryl_error *error) {
    static const text_special_name around[2][2] = {{TEXT_SPECIAL_IMAGE, TEXT_SPECIAL_IMAGE_END},
                                                   {TEXT_SPECIAL_AUDIO, TEXT_SPECIAL_AUDIO_END}};
    const text_tokenizer *tok = s->engine->tokenizer;
    const int32_t video = text_special(tok, TEXT_SPECIAL_VIDEO_SOFT);
    size_t used = 0, more = 0;
    for (size_t i = 0; i < s->media.count; i++) more += s->media.data[i]->n_soft + 1;
    text_ids out = {0};
    base_heap *heap = &s->engine->heap;
    if (!base_vec_reserve(heap, &out, ids->count + more))
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < ids->count; i++) {
        const int32_t id = ids->data[i];
        const bool sound = id == soft_id(s, BERYL_SOUND),
                   place = sound || id == soft_id(s, BERYL_PICTURE);
        const beryl_media *m = used < s->media.count ? s->media.data[used] : NULL;
        if (id == video && id >= 0) {
            status = base_fail(error, BERYL_UNSUPPORTED, "video in a conversation");
        } else if (!place) {
            out.data[out.count++] = id;
        } else if (!m || (m->kind == BERYL_SOUND) != sound) {
            status = base_fail(error, BERYL_BAD_INPUT,
                               "the conversation has a place for %s where media %zu is %s",
                               sound ? "sound" : "a picture", used,
                               !m      ? "not there"
                               : sound ? "a picture"
                                       : "sound");
        } else {
            out.data[out.count++] = text_special(tok, around[sound][0]);
            for (uint32_t k = 0; k < m->n_soft; k++) out.data[out.count++] = id;
            out.data[out.count++] = text_special(tok, around[sound][1]);
            used++;
        }
    }
    text_ids_fini(tok, status == BERYL_OK ? ids : &out);
    if (status == BERYL_OK) *ids = out;
    return status;
}

const session_span *session_span_at(const beryl_session *s, size_t p) {
    for (size_t i = 0; i < s->spans.count; i++)
        if (s->spans.data[i].begin + s->spans.data[i].media->n_soft > p) return &s->spans.data[i];
    return NULL;
}
