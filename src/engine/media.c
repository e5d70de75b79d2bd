/* media.c - pictures, sound and videos: what a model takes of a file, pixels or samples, and how a
 * tower makes soft tokens of it. */
#include "base/build.h"
#include "base/error.h"
#include "engine/media.h"
#include "engine/towers.h"
#include "media/file.h"
#include "media/resize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET_MAX = 1120, SIDE_MAX = 65535, PIXELS_MAX = 1 << 28 };

/* ---- media ----------------------------------------------------------------------------------- */

static void forget_content(beryl_media *m) {
    base_heap *heap = &m->engine->heap;
    base_heap_give(heap, m->rgb, (size_t)m->width * m->height * 3);
    base_heap_give(heap, m->samples, m->n_sample * sizeof *m->samples);
    m->rgb = NULL;
    m->samples = NULL;
}

void media_drop(beryl_media *m) {
    if (!m || --m->users) return;
    base_heap *heap = &m->engine->heap;
    for (uint32_t i = 0; i < media_frames(m); i++) media_drop(m->frames[i].picture);
    base_heap_give(heap, m->frames, media_frames(m) * sizeof *m->frames);
    forget_content(m);
    if (m->soft)
        base_heap_give(heap, m->soft,
                       (size_t)m->n_soft * m->engine->model.config.n_embd * sizeof *m->soft);
    base_heap_give(heap, m, sizeof *m);
}

void beryl_media_close(beryl_media *m) {
    media_drop(m);
}

/* What a picture becomes, in its own memory. */
static beryl_status take_picture(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    const gemma4_vision *v = &m->engine->towers->vision;
    const uint32_t unit = gemma4_vision_unit(v),
                   budget = d->budget ? d->budget : engine_tower_usual(m->engine, BERYL_PICTURE);
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
    if (!m->samples) return base_no_memory(error);
    for (size_t i = 0; i < n; i++) {
        const float x = samples[i];
        m->samples[i] = x > 1 ? 1 : x >= -1 ? x : x < -1 ? -1 : 0; /* NaN: silence */
    }
    m->hash = base_hash(m->samples, size, 1);
    return BERYL_OK;
}

/* A picture's file, or pixels. */
static beryl_status open_picture(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    if (!BUILD_HAS_MEDIA_FILES || !d->file) return take_picture(m, d, error);
    media_picture picture;
    beryl_media_desc decoded = *d;
    beryl_status status =
        media_picture_read(&m->engine->heap, d->file, d->file_size, &picture, error);
    if (status != BERYL_OK) return status;
    decoded.rgb = picture.rgb;
    decoded.width = picture.width;
    decoded.height = picture.height;
    status = take_picture(m, &decoded, error);
    media_picture_fini(&m->engine->heap, &picture);
    return status;
}

/* A sound file, or samples. What is left of a file after a part of it is told where it is long
 * enough to be heard. */
static beryl_status open_sound(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    enum { REST_MIN = GEMMA4_AUDIO_RATE / 10 };
    base_heap *heap = &m->engine->heap;
    const bool samples = !d->file;
    if (samples && (!d->rate || d->rate == GEMMA4_AUDIO_RATE))
        return take_samples(m, d->samples, d->n_sample, error);
    if (samples && (!d->samples || d->rate < MEDIA_RATE_MIN || d->rate > MEDIA_RATE_MAX))
        return base_fail(error, BERYL_MISUSE, "%s at %u samples a second: %d to %d",
                         d->samples ? "sound" : "sound without samples", d->rate, MEDIA_RATE_MIN,
                         MEDIA_RATE_MAX);
    media_sound sound = {.samples = (float *)(uintptr_t)d->samples, d->n_sample, d->rate},
                at_rate = {0};
    const media_part part = {d->from, GEMMA4_AUDIO_SAMPLES, GEMMA4_AUDIO_RATE};
    beryl_status status = BERYL_OK;
    if (!samples && BUILD_HAS_MEDIA_FILES)
        status = media_sound_read(heap, d->file, d->file_size, &part, &sound, error);
    else if (!samples) status = media_wav_read(heap, d->file, d->file_size, &part, &sound, error);
    else if ((double)d->n_sample / d->rate > (double)GEMMA4_AUDIO_SAMPLES / GEMMA4_AUDIO_RATE)
        status = base_fail(error, BERYL_BAD_INPUT, "sound of %.1f s: at most 30 s",
                           (double)d->n_sample / d->rate);
    const bool other = status == BERYL_OK && sound.rate != GEMMA4_AUDIO_RATE;
    const uint64_t rest =
        sound.rate ? (uint64_t)((double)sound.n_rest * GEMMA4_AUDIO_RATE / sound.rate) : 0;
    if (rest >= REST_MIN) m->n_rest = rest;
    if (status == BERYL_OK && !sound.n)
        status = base_fail(error, BERYL_BAD_INPUT, "a sound file without samples%s",
                           d->from ? " after that time" : "");
    if (status == BERYL_OK && m->n_rest && !d->part)
        status = base_fail(error, BERYL_BAD_INPUT, "sound of %.1f s: at most 30 s",
                           (double)(rest + GEMMA4_AUDIO_SAMPLES) / GEMMA4_AUDIO_RATE);
    if (status == BERYL_OK && other)
        status = media_resample(heap, &sound, GEMMA4_AUDIO_RATE, &at_rate, error);
    const media_sound *given = other ? &at_rate : &sound;
    if (status == BERYL_OK)
        status =
            take_samples(m, given->samples,
                         given->n < GEMMA4_AUDIO_SAMPLES ? given->n : GEMMA4_AUDIO_SAMPLES, error);
    base_heap_give(heap, at_rate.samples, at_rate.n * sizeof *at_rate.samples);
    if (!samples) base_heap_give(heap, sound.samples, sound.n * sizeof *sound.samples);
    return status;
}

/* Each frame is a picture of its own. */
static beryl_status open_video(beryl_media *m, const beryl_media_desc *d, beryl_error *error) {
    enum { FRAME_BUDGET = 70 };
    base_heap *heap = &m->engine->heap;
    if (!d->rgb || !d->n_frame || d->n_frame > BERYL_VIDEO_FRAMES)
        return base_fail(error, BERYL_MISUSE, "a video of %u frames: 1 to %d are taken",
                         d->rgb ? d->n_frame : 0, BERYL_VIDEO_FRAMES);
    for (uint32_t i = 0; d->times && i < d->n_frame; i++)
        if (!(d->times[i] >= 0 && d->times[i] < 6000))
            return base_fail(error, BERYL_BAD_INPUT, "frame %u of a video at %g s", i, d->times[i]);
    m->frames = base_heap_take(heap, d->n_frame * sizeof *m->frames);
    if (!m->frames) return base_no_memory(error);
    m->n_frame = d->n_frame;
    beryl_media_desc frame = *d;
    if (!frame.budget) frame.budget = FRAME_BUDGET;
    for (uint32_t i = 0; i < media_frames(m); i++) {
        frame.rgb = d->rgb + (size_t)i * d->height * d->width * 3;
        beryl_media *f = m->frames[i].picture = base_heap_take(heap, sizeof *f);
        if (!f) return base_no_memory(error);
        *f = (beryl_media){.engine = m->engine, .users = 1, .kind = BERYL_PICTURE};
        const beryl_status status = take_picture(f, &frame, error);
        if (status != BERYL_OK) return status;
        m->frames[i].second = d->times ? (uint32_t)d->times[i] : i;
        m->n_soft += f->n_soft;
    }
    return BERYL_OK;
}

static beryl_status find_tower(beryl_engine *e, beryl_media_kind kind, beryl_error *error) {
    if (!e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE, "the engine has no model loaded");
    return engine_tower_find(e, kind, error);
}

beryl_status beryl_media_open(beryl_engine *e, const beryl_media_desc *desc, beryl_media **out,
                              beryl_error *error) {
    if (!e || !desc || !out || desc->size < sizeof *desc || desc->kind < BERYL_PICTURE ||
        desc->kind > BERYL_VIDEO)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_media_open needs an engine, a picture, sound or video, its size, "
                         "and a place for the media");
    *out = NULL;
    beryl_status status = find_tower(e, desc->kind, error);
    if (status != BERYL_OK) return status;
    beryl_media *m = base_heap_take(&e->heap, sizeof *m);
    if (!m) return base_no_memory(error);
    *m = (beryl_media){.engine = e, .users = 1, .kind = desc->kind};
    if (m->kind == BERYL_SOUND) status = open_sound(m, desc, error);
    else if (m->kind == BERYL_PICTURE || !BUILD_HAS_MEDIA_FILES)
        status = open_picture(m, desc, error);
    else status = open_video(m, desc, error);
    if (status == BERYL_OK) *out = m;
    else media_drop(m);
    return status;
}

void beryl_media_soft(const beryl_media *m, const float **soft, size_t *n_token, size_t *n_embd) {
    if (soft) *soft = m ? m->soft : NULL;
    if (n_token) *n_token = m ? m->n_soft : 0;
    if (n_embd) *n_embd = m ? m->engine->model.config.n_embd : 0;
}

uint64_t beryl_media_rest(const beryl_media *m) {
    return m ? m->n_rest : 0;
}

/* Frames are encoded in order. */
bool media_is_encoded(const beryl_media *m) {
    return media_frames(m) ? media_is_encoded(m->frames[media_frames(m) - 1].picture)
                           : m->soft != NULL;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static beryl_media *encoded_now(const media_encoding *c) {
    return media_frames(c->media) ? c->media->frames[c->frame].picture : c->media;
}

static void *input_of(const engine_tower_plan *plan, graph_value v) {
    return v ? graph_exec_input(plan->exec, v) : NULL;
}

beryl_status media_submit(const beryl_media *m, const engine_tower_plan *to, device_ticket *ticket,
                          beryl_error *error) {
    beryl_engine *e = m->engine;
    const engine_towers *t = e->towers;
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    if (m->kind == BERYL_SOUND) {
        const gemma4_audio_graph *g = &to->listens;
        extents[g->extent] = gemma4_audio_frames(&t->audio, m->n_sample);
        if (gemma4_audio_fill(&t->audio, &e->heap, m->samples, m->n_sample,
                              input_of(to, g->frames)) != BERYL_OK)
            return base_no_memory(error);
        if (g->mask) gemma4_audio_mask(m->n_soft, input_of(to, g->mask));
        if (g->distance) gemma4_audio_distances(&t->audio, input_of(to, g->distance));
    } else {
        const gemma4_vision_graph *g = &to->sees;
        extents[g->extent] = m->n_soft;
        gemma4_vision_fill(&t->vision, m->rgb, m->width, m->height, input_of(to, g->pixels),
                           input_of(to, g->columns), input_of(to, g->rows),
                           input_of(to, g->angles));
    }
    return graph_exec_submit(to->exec, extents, &to->soft, 1, ticket, error);
}

static beryl_status take_soft(beryl_engine *e, media_encoding *c, beryl_error *error) {
    beryl_media *m = encoded_now(c);
    const void *data = NULL;
    const size_t size = (size_t)m->n_soft * e->model.config.n_embd * sizeof *m->soft;
    beryl_status status =
        graph_exec_fetched(engine_tower_of(e, m->kind)->plan.exec, c->ticket, 0, &data, error);
    if (status != BERYL_OK) return status;
    m->soft = base_heap_take(&e->heap, size);
    if (!m->soft) return base_no_memory(error);
    memcpy(m->soft, data, size);
    if (e->device) device_fetch_drop(e->device, c->ticket);
    forget_content(m);
    c->submitted = false;
    return media_is_encoded(c->media) ? BERYL_OK : BERYL_EVENT;
}

void media_encode_begin(media_encoding *c, beryl_media *m) {
    *c = (media_encoding){.media = m};
    m->users++;
    engine_tower_of(m->engine, m->kind)->users++;
}

beryl_status media_encode_step(beryl_task *task, media_encoding *c) {
    beryl_engine *e = task->engine;
    beryl_status status = BERYL_OK;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    if (media_is_encoded(c->media)) return BERYL_OK;
    while (encoded_now(c)->soft) c->frame++;
    beryl_media *m = encoded_now(c);
    if (!c->submitted) {
        const uint32_t usual = engine_tower_usual(e, m->kind),
                       bound = m->kind == BERYL_PICTURE && m->n_soft > usual ? m->n_soft : usual;
        status = engine_tower_step(task, m->kind, bound);
        if (status == BERYL_OK)
            status = media_submit(m, &engine_tower_of(e, m->kind)->plan, &c->ticket, &task->error);
        if (status != BERYL_OK) return status;
        c->submitted = true;
    }
    device_ticket done = UINT64_MAX;
    if (e->device) status = device_poll(e->device, &done, &task->error);
    if (status != BERYL_OK) return status;
    if (done < c->ticket) return BERYL_PENDING;
    status = take_soft(e, c, &task->error);
    return status == BERYL_EVENT
               ? task_progress(task, "encoding", c->frame + 1, media_frames(c->media))
               : status;
}

void media_encode_end(media_encoding *c) {
    if (!c->media) return;
    beryl_engine *e = c->media->engine;
    if (c->submitted && e->device) device_wait(e->device, c->ticket, NULL);
    engine_tower_of(e, c->media->kind)->users--;
    media_drop(c->media);
    *c = (media_encoding){0};
}

static beryl_status encode_step(beryl_task *task) {
    return media_encode_step(task, task->state);
}

static void encode_close(beryl_task *task) {
    media_encode_end(task->state);
    base_heap_give(&task->engine->heap, task->state, sizeof(media_encoding));
}

beryl_status beryl_media_encode(beryl_media *m, beryl_task **out, beryl_error *error) {
    if (!m || !out)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_media_encode needs media and a place for the task");
    beryl_engine *e = m->engine;
    media_encoding *c = base_heap_take(&e->heap, sizeof *c);
    if (!c) return base_no_memory(error);
    const beryl_status status = task_open(e, NULL, encode_step, out, error);
    if (status != BERYL_OK) {
        base_heap_give(&e->heap, c, sizeof *c);
        return status;
    }
    media_encode_begin(c, m);
    (*out)->state = c;
    (*out)->close = encode_close;
    return BERYL_OK;
}

/* ---- before there is media ------------------------------------------------------------------- */

static beryl_status prepare_step(beryl_task *task) {
    beryl_engine *e = task->engine;
    const beryl_media_kind kind =
        task->state == engine_tower_of(e, BERYL_SOUND) ? BERYL_SOUND : BERYL_PICTURE;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    return engine_tower_step(task, kind, engine_tower_usual(e, kind));
}

static void prepare_close(beryl_task *task) {
    engine_tower *tower = task->state;
    tower->users--;
}

beryl_status beryl_engine_prepare_media(beryl_engine *e, beryl_media_kind kind, beryl_task **out,
                                        beryl_error *error) {
    if (!e || !out || kind < BERYL_PICTURE || kind > BERYL_VIDEO)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_prepare_media needs an engine, a kind of media and a place "
                         "for the task");
    beryl_status status = find_tower(e, kind, error);
    if (status == BERYL_OK) status = task_open(e, NULL, prepare_step, out, error);
    if (status != BERYL_OK) return status;
    engine_tower *tower = engine_tower_of(e, kind);
    tower->users++;
    (*out)->state = tower;
    (*out)->close = prepare_close;
    return BERYL_OK;
}
