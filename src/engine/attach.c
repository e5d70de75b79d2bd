/* attach.c - pictures and sound that a conversation holds itself, in OpenAI's form: data URLs and
 * base64.
 *
 * No part makes the library open a file or ask a network: what is not in the conversation is given
 * to the session (beryl_session_media). */
#include "base/build.h"
#include "base/error.h"
#include "engine/media.h"

#include <string.h>

/* Soft tokens for "detail". */
enum { DETAIL_LOW = 70, DETAIL_HIGH = 1120 };

/* Base64 of RFC 4648, white space passed over, into `out`, which has 3 bytes for each begun four
 * letters. False: something else. */
static bool decode(base_view text, uint8_t *out, size_t *size) {
    uint32_t bits = 0, n = 0, n_pad = 0;
    size_t at = 0;
    for (size_t i = 0; i < text.size; i++) {
        const char c = text.data[i];
        const uint32_t value = c >= 'A' && c <= 'Z'   ? (uint32_t)(c - 'A')
                               : c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a') + 26
                               : c >= '0' && c <= '9' ? (uint32_t)(c - '0') + 52
                               : c == '+'             ? 62
                               : c == '/'             ? 63
                                                      : 64;
        if (c == ' ' || (c >= '\t' && c <= '\r')) continue;
        if (c == '=') n_pad++;
        else if (value > 63 || n_pad) return false;
        if (c == '=') continue;
        bits = bits << 6 | value;
        if (++n % 4) continue;
        for (int k = 16; k >= 0; k -= 8) out[at++] = (uint8_t)(bits >> k);
    }
    const uint32_t left = n % 4;
    if (left == 1 || (n_pad && (n + n_pad) % 4) || n_pad > 2) return false;
    if (left == 2) out[at++] = (uint8_t)(bits >> 4);
    if (left == 3) {
        out[at++] = (uint8_t)(bits >> 10);
        out[at++] = (uint8_t)(bits >> 2);
    }
    *size = at;
    return true;
}

/* The base64 of "data:image/png;base64,..."; false: another URL. */
static bool data_url(base_view url, base_view *text) {
    if (!base_view_begins(url, BASE_VIEW("data:"))) return false;
    const char *comma = memchr(url.data, ',', url.size);
    if (!comma) return false;
    const base_view head = {url.data, (size_t)(comma - url.data)};
    *text = (base_view){comma + 1, url.size - head.size - 1};
    return base_view_ends(head, BASE_VIEW(";base64"));
}

typedef struct held { /* by a part */
    beryl_media_kind kind;
    base_view text; /* base64 */
    uint32_t budget;
} held;

static beryl_status read_picture(const base_json *part, held *h, beryl_error *error) {
    const base_json *url = base_json_find(part, "image_url"), *detail = NULL;
    if (!url) return BERYL_OK;
    if (url->kind == JSON_OBJECT) {
        detail = base_json_find(url, "detail");
        url = base_json_find(url, "url");
    }
    if (!url || url->kind != JSON_STRING || !data_url(url->text, &h->text))
        return base_fail_at(error, BERYL_BAD_INPUT, part->at,
                            "image_url at byte %zu: a data URL in base64 is taken; other pictures "
                            "are given beside the conversation",
                            part->at);
    if (!detail || detail->kind == JSON_NULL) return BERYL_OK;
    if (base_view_equal(detail->text, BASE_VIEW("low"))) h->budget = DETAIL_LOW;
    else if (base_view_equal(detail->text, BASE_VIEW("high"))) h->budget = DETAIL_HIGH;
    else if (!base_view_equal(detail->text, BASE_VIEW("auto")))
        return base_fail_at(error, BERYL_BAD_INPUT, detail->at,
                            "detail at byte %zu: low, high or auto", detail->at);
    return BERYL_OK;
}

static beryl_status read_sound(const base_json *part, held *h, beryl_error *error) {
    const base_json *sound = base_json_find(part, "input_audio"),
                    *data = base_json_find(sound, "data");
    if (!sound) return BERYL_OK;
    if (!data || data->kind != JSON_STRING)
        return base_fail_at(error, BERYL_BAD_INPUT, part->at,
                            "input_audio at byte %zu: an object with data, a file in base64",
                            part->at);
    if (!data_url(data->text, &h->text)) h->text = data->text;
    return BERYL_OK;
}

/* With the same source: in the list, or before. */
static beryl_media *known(const session_spans *before, const media_list *list, const held *h,
                          uint64_t source) {
    for (size_t i = 0; i < list->count; i++)
        if (list->data[i]->source == source && list->data[i]->kind == h->kind) return list->data[i];
    for (size_t i = 0; before && i < before->count; i++) {
        beryl_media *m = before->data[i].media;
        if (m->source == source && m->kind == h->kind) return m;
    }
    return NULL;
}

static beryl_status open_held(beryl_engine *e, const base_json *part, const held *h,
                              const session_spans *before, media_list *list, beryl_error *error) {
    base_heap *heap = &e->heap;
    const uint64_t source = base_hash(h->text.data, h->text.size, 1 + (uint64_t)h->budget);
    beryl_media *m = known(before, list, h, source);
    if (m) return media_list_add(heap, list, m) ? BERYL_OK : base_no_memory(error);
    const size_t room = h->text.size / 4 * 3 + 3;
    uint8_t *file = base_heap_take(heap, room);
    if (!file) return base_no_memory(error);
    beryl_media_desc desc = {
        .size = sizeof desc, .kind = h->kind, .file = file, .budget = h->budget};
    beryl_status status = BERYL_OK;
    if (!decode(h->text, file, &desc.file_size))
        status = base_fail_at(error, BERYL_BAD_INPUT, part->at,
                              "the part at byte %zu: its data is no base64", part->at);
    if (status == BERYL_OK) status = beryl_media_open(e, &desc, &m, error);
    if (status == BERYL_OK && !media_list_add(heap, list, m)) status = base_no_memory(error);
    if (m) m->source = source;
    media_drop(m);
    base_heap_give(heap, file, room);
    return status;
}

beryl_status media_held(beryl_engine *e, const text_chunk *place, const session_spans *before,
                        media_list *list, beryl_error *error) {
    const bool sound = place->kind == TEXT_CHUNK_AUDIO;
    held h = {.kind = sound ? BERYL_SOUND : BERYL_PICTURE};
    if (!BUILD_HAS_MEDIA_FILES || place->kind == TEXT_CHUNK_VIDEO) return BERYL_NOT_FOUND;
    const beryl_status status =
        sound ? read_sound(place->part, &h, error) : read_picture(place->part, &h, error);
    if (status != BERYL_OK) return status;
    return h.text.data ? open_held(e, place->part, &h, before, list, error) : BERYL_NOT_FOUND;
}

beryl_status media_attached(beryl_session *s, const text_prompt *prompt, media_list *out,
                            beryl_error *error) {
    size_t n_given = 0;
    for (size_t i = 0; i < prompt->n_chunk; i++) {
        const text_chunk *chunk = &prompt->chunks[i];
        if (chunk->kind < TEXT_CHUNK_IMAGE) continue;
        beryl_status status = media_held(s->engine, chunk, &s->spans, out, error);
        if (status == BERYL_NOT_FOUND && n_given == s->given.count)
            status = base_fail_at(error, BERYL_BAD_INPUT, chunk->part->at,
                                  "the conversation has a place for media at byte %zu, and %s was "
                                  "given",
                                  chunk->part->at, n_given ? "no more" : "none");
        else if (status == BERYL_NOT_FOUND)
            status = media_list_add(&s->engine->heap, out, s->given.data[n_given++])
                         ? BERYL_OK
                         : base_no_memory(error);
        if (status != BERYL_OK) return status;
    }
    return n_given == s->given.count
               ? BERYL_OK
               : base_fail(error, BERYL_BAD_INPUT, "%zu pictures and clips for %zu places",
                           s->given.count, n_given);
}
