/* merge.c - a model's file with adapters folded in.
 *
 * Tensors are written in the order of the file. One that no adapter changes is copied; of another
 * each row is dequantised, gets c_r * M_r of every rank r, and is quantised again: M the half with
 * rows as long as the weight's (A; of the embedding, whose rows are tokens, B), c the other one's
 * numbers for this row. */
#include "base/error.h"
#include "base/file.h"
#include "base/quantise.h"
#include "engine/engine.h"
#include "format/gguf_write.h"
#include "format/store.h"

#include <math.h>
#include <string.h>

enum { COPY_BYTES = 1 << 18 };

typedef struct use { /* of a part for a tensor */
    struct use *next;
    const format_lora_part *part;
    float scale; /* the caller's */
    gemma4_lora_place place;
    float *rows;     // [rank, width]: M of an expert, while the tensor is written
    uint64_t expert; /* whose M that is; UINT64_MAX: none yet */
} use;

typedef struct written { /* a tensor of the new file */
    const format_gguf_tensor *from;
    base_view name;
    base_type type;
    use *uses;
} written;

typedef struct merging {
    beryl_merge_options o;
    base_heap heap;
    base_arena arena;
    format_gguf *gguf;
    gemma4_model model;
    graph_store store;
    bool has_store;
    engine_adapter_file *adapters; // [n_adapter]
    written *tensors;              // [n]
    size_t n;
    base_type type; /* that the caller wants; TYPE_COUNT: each its own */
    uint64_t done, total;
    beryl_error *error;
} merging;

static beryl_status no_memory(const merging *m) {
    return base_no_memory(m->error);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static beryl_status open_model(merging *m) {
    format_model found;
    beryl_status status = format_store_find(&m->arena, m->o.model, &found, m->error);
    if (!status) status = format_gguf_open_path(&m->heap, found.path, &m->gguf, m->error);
    while (!status && (status = format_gguf_step(m->gguf, m->error)) == BERYL_PENDING)
        status = BERYL_OK;
    if (!status) status = gemma4_check_architecture(m->gguf, m->error);
    if (!status) status = gemma4_config_read(m->gguf, &m->arena, &m->model, m->error);
    if (status) return status;
    if (format_gguf_data_size(m->gguf) > format_gguf_size(m->gguf))
        return base_fail(m->error, BERYL_BAD_FILE,
                         "the model's tensors claim more than the %llu bytes that there are",
                         (unsigned long long)format_gguf_size(m->gguf));
    const size_t n_file = format_gguf_n_file(m->gguf);
    beryl_source *sources = base_arena_take(&m->arena, n_file, sizeof *sources);
    if (!sources) return no_memory(m);
    for (size_t i = 0; i < n_file; i++) sources[i] = *format_gguf_source(m->gguf, i);
    status = store_init(&m->store, &m->heap, NULL, sources, (uint32_t)n_file, m->error);
    m->has_store = !status;
    return status ? status : gemma4_weights_add(m->gguf, &m->model, &m->store, false, m->error);
}

/* The tensor of the new file that a weight of the model becomes. */
static written *tensor_of(merging *m, uint32_t weight) {
    const store_tensor *t = &m->store.tensors.data[weight];
    for (size_t i = 0; i < m->n; i++)
        if (m->tensors[i].from->file == t->file && m->tensors[i].from->offset == t->file_offset)
            return &m->tensors[i];
    return NULL;
}

static beryl_status add_use(merging *m, written *to, const format_lora_part *p, float scale,
                            const gemma4_lora_place *place) {
    const format_gguf_tensor *t = to->from;
    const uint64_t width = p->target == LORA_EMBED ? p->out : p->in,
                   rows = p->target == LORA_EMBED ? p->in : place->row + place->n;
    if (t->ne[0] != width || t->ne[1] < rows || (p->n_expert > 1 && t->ne[2] != p->n_expert))
        return base_fail(m->error, BERYL_UNSUPPORTED,
                         "tensor '%.*s' has not the shape that the adapter's '%.*s' goes with",
                         (int)t->name.size, t->name.data, (int)p->a.name.size, p->a.name.data);
    use *u = base_arena_take(&m->arena, 1, sizeof *u);
    if (!u) return no_memory(m);
    *u = (use){.part = p, .scale = scale, .place = *place, .expert = UINT64_MAX};
    use **last = &to->uses; /* in the order of the adapters, so that sums are the same each time */
    while (*last) last = &(*last)->next;
    *last = u;
    if (m->type != TYPE_COUNT) to->type = m->type;
    if (base_can_quantise(to->type)) return BERYL_OK;
    to->type = TYPE_F16;
    base_log(&m->o.log, BERYL_LOG_WARNING, "tensor '%.*s' of type %s becomes F16",
             (int)t->name.size, t->name.data, base_type_name(t->type));
    return BERYL_OK;
}

static beryl_status add_part(merging *m, const format_lora_part *p, float scale) {
    gemma4_lora_place places[2];
    bool acts;
    beryl_status status = gemma4_lora_check(&m->model, p, &acts, m->error);
    if (status) return status;
    const uint32_t n = gemma4_lora_places(&m->model, p->target, p->layer, places);
    if (!n && p->target == LORA_HEAD) { /* tied: the copy, which is the last tensor */
        places[0].weight = m->model.token_embd;
        return add_use(m, &m->tensors[m->n - 1], p, scale, &places[0]);
    }
    for (uint32_t i = 0; !status && acts && i < n; i++) {
        written *to = tensor_of(m, places[i].weight);
        if (!to || m->store.tensors.data[places[i].weight].scale != UINT32_MAX)
            return base_fail(m->error, BERYL_UNSUPPORTED,
                             "tensor '%s' has a scale beside it: nothing is folded into such",
                             m->store.tensors.data[places[i].weight].name);
        status = add_use(m, to, p, scale, &places[i]);
    }
    return status;
}

static beryl_status open_adapters(merging *m) {
    bool parted = false; /* embedding and head */
    beryl_status status = BERYL_OK;
    m->adapters = base_arena_take(&m->arena, m->o.n_adapter, sizeof *m->adapters);
    if (!m->adapters) return no_memory(m);
    for (size_t i = 0; !status && i < m->o.n_adapter; i++) {
        const format_lora *l = &m->adapters[i].lora;
        status = engine_adapter_file_open(&m->heap, m->o.adapters[i], &m->adapters[i], m->error);
        for (size_t k = 0; !status && k < l->n_part; k++)
            parted |= l->parts[k].target == LORA_EMBED || l->parts[k].target == LORA_HEAD;
    }
    const size_t n = format_gguf_n_tensor(m->gguf);
    m->tensors = base_arena_take(&m->arena, n + 1, sizeof *m->tensors);
    if (status || !m->tensors) return status ? status : no_memory(m);
    for (; m->n < n; m->n++) {
        const format_gguf_tensor *t = format_gguf_tensor_at(m->gguf, m->n);
        m->tensors[m->n] = (written){t, t->name, t->type, NULL};
    }
    if (parted && m->model.output == GEMMA4_NONE) {
        const written *table = tensor_of(m, m->model.token_embd);
        if (!table) return base_fail(m->error, BERYL_BAD_FILE, "no tensor token_embd.weight");
        m->tensors[m->n++] = (written){table->from, BASE_VIEW("output.weight"), table->type, NULL};
    }
    for (size_t i = 0; !status && i < m->o.n_adapter; i++) {
        const format_lora *l = &m->adapters[i].lora;
        for (size_t k = 0; !status && k < l->n_part; k++)
            status = add_part(m, &l->parts[k], m->o.scales ? m->o.scales[i] : 1);
    }
    return status;
}

/* ---- what is written ------------------------------------------------------------------------- */

static beryl_status read_bytes(const merging *m, const format_gguf_tensor *t, uint64_t at, void *to,
                               size_t size) {
    const beryl_source *source = format_gguf_source(m->gguf, t->file);
    const beryl_status status = source->read(source->user, t->offset + at, to, size);
    return status ? base_source_fail(source, "the model", status, t->offset + at, m->error)
                  : BERYL_OK;
}

static beryl_status tell(merging *m, uint64_t more) {
    m->done += more;
    return m->o.progress && !m->o.progress(m->o.user, m->done, m->total)
               ? base_fail(m->error, BERYL_CANCELLED, "cancelled")
               : BERYL_OK;
}

static beryl_status copy_tensor(merging *m, const written *w, format_out *out, uint8_t *room) {
    beryl_status status = BERYL_OK;
    for (uint64_t at = 0; !status && !out->status && at < w->from->size; at += COPY_BYTES) {
        const uint64_t left = w->from->size - at;
        const size_t n = left < COPY_BYTES ? (size_t)left : COPY_BYTES;
        status = read_bytes(m, w->from, at, room, n);
        format_out_add(out, room, status ? 0 : n);
        if (!status) status = tell(m, n);
    }
    return status;
}

/* M of an expert. */
static void take_rows(use *u, uint64_t expert, uint64_t width) {
    const bool of_tokens = u->part->target == LORA_EMBED;
    const format_lora_half *h = of_tokens ? &u->part->b : &u->part->a;
    if (u->expert == expert) return;
    u->expert = expert;
    for (uint64_t r = 0; r < u->part->rank; r++)
        for (uint64_t i = 0; i < width; i++)
            u->rows[r * width + i] =
                format_lora_value(h, expert * h->stride[0] + r * h->stride[1] + i * h->stride[2]);
}

static void fold_row(use *u, uint64_t row, uint64_t n_row, uint64_t width, float *x) {
    const format_lora_part *p = u->part;
    const bool of_tokens = p->target == LORA_EMBED;
    const format_lora_half *h = of_tokens ? &p->a : &p->b;
    const uint64_t expert = p->n_expert > 1 ? row / n_row : 0;
    uint64_t o = p->n_expert > 1 ? row % n_row : row;
    if (!of_tokens) {
        if (o < u->place.row || o - u->place.row >= u->place.n) return;
        o = o - u->place.row + u->place.from;
    }
    take_rows(u, expert, width);
    for (uint64_t r = 0; r < p->rank; r++) {
        const float c =
            format_lora_value(h, expert * h->stride[0] + r * h->stride[1] + o * h->stride[2]) *
            p->factor * u->scale;
        const float *by = u->rows + r * width;
        for (uint64_t i = 0; i < width; i++) x[i] += c * by[i];
    }
}

static beryl_status fold_rows(merging *m, const written *w, uint64_t row, uint64_t n,
                              const uint8_t *from, float *x, uint8_t *to, format_out *out) {
    const format_gguf_tensor *t = w->from;
    const uint64_t width = t->ne[0];
    const size_t before = (size_t)base_type_row_bytes(t->type, width),
                 after = (size_t)base_type_row_bytes(w->type, width);
    for (; n--; row++, from += before) {
        base_dequantise(t->type, from, x, (size_t)width);
        for (use *u = w->uses; u; u = u->next) fold_row(u, row, t->ne[1], width, x);
        for (uint64_t i = 0; i < width; i++)
            if (!(fabsf(x[i]) <= 65504))
                return base_fail(m->error, BERYL_UNSUPPORTED,
                                 "tensor '%.*s': row %llu would have a value that is no number "
                                 "or larger than 65504",
                                 (int)w->name.size, w->name.data, (unsigned long long)row);
        base_quantise(w->type, x, to, (size_t)width);
        format_out_add(out, to, after);
    }
    return BERYL_OK;
}

static beryl_status fold_tensor(merging *m, const written *w, format_out *out) {
    const format_gguf_tensor *t = w->from;
    const uint64_t width = t->ne[0], rows = t->ne[1] * t->ne[2] * t->ne[3];
    const size_t before = (size_t)base_type_row_bytes(t->type, width),
                 after = (size_t)base_type_row_bytes(w->type, width);
    const uint64_t step = before < COPY_BYTES ? COPY_BYTES / before : 1; /* rows read at once */
    const size_t size = (size_t)width * sizeof(float) + after + (size_t)step * before;
    float *x = base_heap_resize(&m->heap, NULL, 0, size);
    beryl_status status = x ? BERYL_OK : no_memory(m);
    for (use *u = w->uses; !status && u; u = u->next) {
        u->rows = base_heap_resize(&m->heap, NULL, 0, u->part->rank * (size_t)width * sizeof *x);
        if (!u->rows) status = no_memory(m);
    }
    for (uint64_t row = 0; !status && !out->status && row < rows; row += step) {
        const uint64_t n = rows - row < step ? rows - row : step;
        uint8_t *to = (uint8_t *)(x + width), *from = to + after;
        status = read_bytes(m, t, row * before, from, (size_t)n * before);
        if (!status) status = fold_rows(m, w, row, n, from, x, to, out);
        if (!status) status = tell(m, n * after);
    }
    for (use *u = w->uses; u; u = u->next)
        base_heap_give(&m->heap, u->rows, u->part->rank * (size_t)width * sizeof *x);
    base_heap_give(&m->heap, x, size);
    return status;
}

static uint32_t gguf_id(const written *w) {
    return w->type == w->from->type ? w->from->gguf_type
           : w->type == TYPE_F32    ? 0
           : w->type == TYPE_F16    ? 1
                                    : 30;
}

static uint64_t bytes_of(const written *w) {
    const format_gguf_tensor *t = w->from;
    return w->type == t->type
               ? t->size
               : base_type_row_bytes(w->type, t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3];
}

static beryl_status write_file(merging *m, format_out *out) {
    uint32_t alignment = 32;
    format_gguf_head h;
    beryl_status status =
        format_gguf_u32_or(m->gguf, "general.alignment", 32, &alignment, m->error);
    if (status) return status;
    format_gguf_head_init(&h, &m->heap, alignment);
    for (size_t i = 0; i < format_gguf_n_pair(m->gguf); i++) {
        const format_gguf_pair *pair = format_gguf_pair_at(m->gguf, i);
        if (!base_view_begins(pair->key, BASE_VIEW("split."))) format_gguf_head_pair(&h, pair);
    }
    for (size_t i = 0; i < m->n; i++) {
        const written *w = &m->tensors[i];
        format_gguf_head_tensor(&h, w->name, gguf_id(w), w->from->n_dim, w->from->ne, bytes_of(w));
        m->total += bytes_of(w);
    }
    status = format_gguf_head_write(&h, out, m->error);
    format_gguf_head_fini(&h);
    uint8_t *room = status ? NULL : base_heap_resize(&m->heap, NULL, 0, COPY_BYTES);
    if (!status && !room) status = no_memory(m);
    for (size_t i = 0; !status && !out->status && i < m->n; i++) {
        const written *w = &m->tensors[i];
        status = w->uses ? fold_tensor(m, w, out) : copy_tensor(m, w, out, room);
        format_out_pad(out, alignment);
    }
    base_heap_give(&m->heap, room, COPY_BYTES);
    return status;
}

beryl_status beryl_merge(const beryl_merge_options *options, beryl_error *error) {
    merging m = {.error = error};
    if (!options || options->size < sizeof options->size || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE, "beryl_merge needs options");
    memcpy(&m.o, options, options->size < sizeof m.o ? options->size : sizeof m.o);
    if (!m.o.out || !m.o.n_adapter || !m.o.adapters || !engine_float_type(m.o.type, &m.type))
        return base_fail(error, BERYL_MISUSE,
                         "beryl_merge needs an adapter, a path to write to, and a type (F32, F16, "
                         "BF16) or none");
    base_heap_init(&m.heap, &m.o.allocator);
    base_arena_init(&m.arena, &m.heap);
    beryl_status status = open_model(&m);
    if (!status) status = open_adapters(&m);
    if (!status) {
        format_out out;
        status = format_out_open(&out, &m.heap, m.o.out, error);
        if (!status) status = format_out_close(&out, write_file(&m, &out), error);
    }
    for (size_t i = 0; m.adapters && i < m.o.n_adapter; i++)
        engine_adapter_file_close(&m.heap, &m.adapters[i]);
    if (m.has_store) store_fini(&m.store);
    format_gguf_close(m.gguf);
    base_arena_fini(&m.arena);
    return status;
}
