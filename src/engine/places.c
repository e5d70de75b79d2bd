/* places.c - where media stands in the prompts of sessions.
 *
 * A soft token stands in a session's timeline as a number below 0 that is made from the content of
 * its picture or clip and from its place in it, so that what two prompts share is found as for any
 * other token. */
#include "base/build.h"
#include "base/error.h"
#include "engine/media.h"

#include <stdio.h>
#include <string.h>

void media_list_fini(base_heap *heap, media_list *list) {
    for (size_t i = 0; i < list->count; i++) media_drop(list->data[i]);
    base_vec_fini(heap, list);
}

bool media_list_add(base_heap *heap, media_list *list, beryl_media *m) {
    beryl_media **to = base_vec_add(heap, list);
    if (to) *to = m;
    if (to) m->users++;
    return to != NULL;
}

void session_spans_fini(base_heap *heap, session_spans *spans) {
    for (size_t i = 0; i < spans->count; i++) media_drop(spans->data[i].media);
    base_vec_fini(heap, spans);
}

void session_media_clear(beryl_session *s) {
    session_spans_fini(&s->engine->heap, &s->spans);
    media_list_fini(&s->engine->heap, &s->given);
}

beryl_status beryl_session_media(beryl_session *s, beryl_media *const *media, size_t n,
                                 beryl_error *error) {
    if (!s || (n && !media))
        return base_fail(error, BERYL_MISUSE, "beryl_session_media needs a session and media");
    if (s->task) return base_fail(error, BERYL_MISUSE, "a task is running on this session");
    for (size_t i = 0; i < n; i++)
        if (!media[i] || media[i]->engine != s->engine || !media_is_encoded(media[i]))
            return base_fail(error, BERYL_MISUSE, "media %zu is not encoded, or another engine's",
                             i);
    base_heap *heap = &s->engine->heap;
    media_list list = {0};
    bool fits = true;
    for (size_t i = 0; fits && i < n; i++) fits = media_list_add(heap, &list, media[i]);
    media_list_fini(heap, fits ? &s->given : &list);
    if (!fits) return base_no_memory(error);
    s->given = list;
    return BERYL_OK;
}

static text_chunk_kind chunk_of(beryl_media_kind kind) {
    return kind == BERYL_PICTURE ? TEXT_CHUNK_IMAGE
           : kind == BERYL_SOUND ? TEXT_CHUNK_AUDIO
                                 : TEXT_CHUNK_VIDEO;
}

static int32_t soft_id(const beryl_session *s, beryl_media_kind kind) {
    return text_media_soft(s->engine->tokenizer, chunk_of(kind));
}

/* What token i of media is in a timeline. */
static int32_t content_id(const beryl_media *m, uint32_t i) {
    const uint64_t mixed =
        (m->hash ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return -1 - (int32_t)(mixed >> 33);
}

/* Pictures, clips and frames of videos that prompts have places for. */
static size_t n_place(const media_list *media) {
    size_t n = 0;
    for (size_t i = 0; i < media->count; i++)
        n += media_frames(media->data[i]) ? media_frames(media->data[i]) : 1;
    return n;
}

/* NULL: there are not as many. */
static beryl_media *place_at(const media_list *media, size_t k) {
    for (size_t i = 0; i < media->count; i++) {
        beryl_media *m = media->data[i];
        const size_t n = media_frames(m) ? media_frames(m) : 1;
        if (k < n) return media_frames(m) ? m->frames[k].picture : m;
        k -= n;
    }
    return NULL;
}

beryl_status session_media_place(const beryl_session *s, const int32_t *tokens, size_t n,
                                 const media_list *media, int32_t *out, session_spans *spans,
                                 beryl_error *error) {
    const int32_t ids[] = {soft_id(s, BERYL_PICTURE), soft_id(s, BERYL_SOUND)};
    const size_t n_media = n_place(media);
    size_t used = 0;
    memcpy(out, tokens, n * sizeof *out);
    if (!base_vec_reserve(&s->engine->heap, spans, n_media)) return base_no_memory(error);
    for (size_t i = 0, end; n_media && i < n; i = end) {
        end = i + 1;
        if (tokens[i] != ids[0] && tokens[i] != ids[1]) continue;
        while (end < n && tokens[end] == tokens[i]) end++;
        beryl_media *m = place_at(media, used);
        if (!m || soft_id(s, m->kind) != tokens[i] || m->n_soft != end - i)
            return base_fail_at(error, BERYL_BAD_INPUT, i,
                                "%zu soft tokens at %zu, where media %zu %s", end - i, i, used,
                                m ? "is of another kind or length" : "is not there");
        m->users++;
        spans->data[spans->count++] = (session_span){i, m};
        for (uint32_t k = 0; k < m->n_soft; k++) out[i + k] = content_id(m, k);
        used++;
    }
    if (used != n_media)
        return base_fail(error, BERYL_BAD_INPUT, "%zu pictures and clips for %zu places", n_media,
                         used);
    if (n && out[n - 1] < 0)
        return base_fail(error, BERYL_BAD_INPUT, "a prompt that ends in a picture or in sound");
    return BERYL_OK;
}

static bool put_media(const beryl_session *s, const beryl_media *m, text_ids *out) {
    return text_media_write(s->engine->tokenizer, chunk_of(m->kind), m->n_soft, out);
}

/* "mm:ss " and the frame, joined by blanks. */
static beryl_status put_video(const beryl_session *s, const beryl_media *m, text_ids *out,
                              beryl_error *error) {
    for (uint32_t i = 0; i < media_frames(m); i++) {
        char text[24];
        const uint32_t second = m->frames[i].second;
        const int n =
            snprintf(text, sizeof text, "%s%02u:%02u ", i ? " " : "", second / 60, second % 60);
        const beryl_status status =
            text_encode(s->engine->tokenizer, text, (size_t)n, TEXT_CONTENT, out, error);
        if (status != BERYL_OK) return status;
        if (!put_media(s, m->frames[i].picture, out)) return base_no_memory(error);
    }
    return BERYL_OK;
}

beryl_status session_media_expand(const beryl_session *s, const media_list *media, text_ids *ids,
                                  beryl_error *error) {
    static const char *const names[] = {"nothing", "a picture", "sound", "a video"};
    const text_tokenizer *tok = s->engine->tokenizer;
    const int32_t places[] = {-1, soft_id(s, BERYL_PICTURE), soft_id(s, BERYL_SOUND),
                              soft_id(s, BERYL_VIDEO)};
    size_t used = 0;
    text_ids out = {0};
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < ids->count; i++) {
        const int32_t id = ids->data[i];
        int kind = BERYL_VIDEO;
        while (kind && places[kind] != id) kind--;
        const beryl_media *m = used < media->count ? media->data[used] : NULL;
        bool room = true;
        if (!kind) {
            int32_t *to = base_vec_add(&s->engine->heap, &out);
            if (to) *to = id;
            room = to != NULL;
        } else if (!m || (int)m->kind != kind) {
            status = base_fail(error, BERYL_BAD_INPUT,
                               "the conversation has a place for %s where media %zu is %s",
                               names[kind], used, m ? names[m->kind] : "not there");
        } else {
            used++;
            if (media_frames(m)) status = put_video(s, m, &out, error);
            else room = put_media(s, m, &out);
        }
        if (!room) status = base_no_memory(error);
    }
    text_ids_fini(tok, status == BERYL_OK ? ids : &out);
    if (status == BERYL_OK) *ids = out;
    return status;
}

const session_span *session_span_at(const session_spans *spans, size_t p) {
    for (size_t i = 0; i < spans->count; i++)
        if (spans->data[i].begin + spans->data[i].media->n_soft > p) return &spans->data[i];
    return NULL;
}
