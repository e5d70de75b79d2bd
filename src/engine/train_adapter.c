/* train_adapter.c - what a training trains: matrices A and B of the targets that were asked for, or
 * of the adapter that it goes on from, as states of the engine's store; and files of them.
 *
 * Refuses experts, targets that the model has not, names that are none. */
#include "base/error.h"
#include "engine/train.h"
#include "format/lora_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GROUP_TRAIN = 1 << 23, /* of the store, beside GROUP_LORA: values, gradients, moments each */
};

/* ---- targets --------------------------------------------------------------------------------- */

typedef struct target_name {
    const char *gguf, *peft;
} target_name;
static const target_name names[LORA_COUNT] = {
#define X(id, gguf, peft, rullama) [LORA_##id] = {gguf, peft},
    FORMAT_LORA_LIST(X)
#undef X
};

static bool same(const char *word, size_t size, const char *name, size_t name_size) {
    return size == name_size && !memcmp(word, name, size);
}

/* "attn_q", "q_proj" or "q" */
static bool is_named(const char *word, size_t size, const target_name *name) {
    const char *last = strrchr(name->peft, '.');
    last = last ? last + 1 : name->peft;
    const char *end = strstr(last, "_proj");
    return same(word, size, name->gguf, strlen(name->gguf)) ||
           same(word, size, last, strlen(last)) ||
           (end && !end[5] && same(word, size, last, (size_t)(end - last)));
}

static bool is_of_experts(format_lora_target target) {
    return target == LORA_GATE_UP_EXPS || target == LORA_DOWN_EXPS;
}

/* A bit for each target of a list of names. */
static beryl_status read_targets(const char *list, uint32_t *targets, beryl_error *error) {
    *targets = 0;
    for (const char *at = list; *at;) {
        const size_t size = strcspn(at, ",");
        int target = 0;
        while (target < LORA_COUNT && !is_named(at, size, &names[target])) target++;
        if (target == LORA_COUNT)
            return base_fail(error, BERYL_MISUSE, "no target is called '%.*s'",
                             size < 60 ? (int)size : 60, at);
        if (is_of_experts((format_lora_target)target))
            return base_fail(error, BERYL_UNSUPPORTED, "experts are not trained: leave '%.*s' out",
                             (int)size, at);
        *targets |= 1u << target;
        at += size;
        if (*at) at++;
    }
    return *targets ? BERYL_OK : base_fail(error, BERYL_MISUSE, "no targets");
}

/* ---- layers ---------------------------------------------------------------------------------- */

static bool read_number(const char **at, uint32_t *out) {
    const char *from = *at;
    for (*out = 0; **at >= '0' && **at <= '9' && *out < 100000; (*at)++)
        *out = *out * 10 + (uint32_t)(**at - '0');
    return *at > from;
}

/* The next "3" or "0-3" of a list; false: something else. */
static bool read_range(const char **at, uint32_t *first, uint32_t *last) {
    if (!read_number(at, first)) return false;
    *last = *first;
    if (**at == '-' && (++*at, !read_number(at, last))) return false;
    if (**at == ',' && (*at)[1]) ++*at;
    else if (**at) return false;
    return *first <= *last;
}

static beryl_status check_layers(const char *list, uint32_t n_layer, beryl_error *error) {
    uint32_t first, last = 0;
    const char *at = list;
    do {
        if (!read_range(&at, &first, &last))
            return base_fail(error, BERYL_MISUSE, "layers are like 0-3,7, not '%.60s'", list);
        if (last >= n_layer)
            return base_fail(error, BERYL_MISUSE, "layer %u: the model has layers 0 to %u", last,
                             n_layer - 1);
    } while (*at);
    return BERYL_OK;
}

/* Of a list that was checked. */
static bool is_in(const char *list, uint32_t layer) {
    uint32_t first = 0, last = 0;
    bool in = !list;
    while (!in && *list && read_range(&list, &first, &last)) in = layer >= first && layer <= last;
    return in;
}

/* ---- matrices -------------------------------------------------------------------------------- */

typedef base_vec(train_matrix) matrix_list;

/* A and B of a part, unless the model does not use the matrix. */
static beryl_status add_part(beryl_train *t, const format_lora_part *p, matrix_list *to,
                             beryl_error *error) {
    const gemma4_model *m = &t->engine->model;
    bool acts;
    beryl_status status = gemma4_lora_check(m, p, &acts, error);
    if (status != BERYL_OK || !acts) return status;
    for (int is_b = 0; is_b < 2; is_b++) {
        train_matrix *matrix = base_vec_add(&t->engine->heap, to);
        if (!matrix) return base_no_memory(error);
        const bool turned = p->target == LORA_EMBED;
        *matrix = (train_matrix){.target = p->target,
                                 .layer = p->layer,
                                 .is_b = is_b,
                                 .rank = p->rank,
                                 .in = p->in,
                                 .out = p->out,
                                 .factor = p->factor,
                                 .coded = t->coded};
        matrix->dim[0] = is_b ? p->out : turned ? p->in : p->rank;
        matrix->dim[1] = is_b || turned ? p->rank : p->in;
    }
    return BERYL_OK;
}

static beryl_status add_targets(beryl_train *t, matrix_list *to, beryl_error *error) {
    const gemma4_model *m = &t->engine->model;
    uint32_t targets;
    const char *layers = t->options.layers;
    beryl_status status = read_targets(t->options.targets, &targets, error);
    if (status == BERYL_OK && layers) status = check_layers(layers, m->config.n_layer, error);
    for (uint32_t k = 0; status == BERYL_OK && k < LORA_COUNT; k++) {
        const bool of_layer = k < LORA_FIRST_OF_MODEL;
        bool any = !(targets >> k & 1);
        for (uint32_t l = 0; status == BERYL_OK && l < (of_layer ? m->config.n_layer : 1); l++) {
            format_lora_part p = {.target = (format_lora_target)k, .layer = l};
            if (!(targets >> k & 1) || !gemma4_lora_shape(m, p.target, l, &p.in, &p.out)) continue;
            p.n_expert = 1;
            p.rank = t->options.rank;
            p.factor = t->options.alpha / (float)p.rank;
            any = true;
            if (of_layer && !is_in(layers, l)) continue;
            status = add_part(t, &p, to, error);
        }
        if (status == BERYL_OK && !any)
            status = base_fail(error, BERYL_UNSUPPORTED, "the model has no %s", names[k].gguf);
    }
    return status;
}

/* States of a matrix: the value, its gradient, its moments. */
static bool add_states(beryl_engine *e, train_matrix *m) {
    static const char *const what[] = {"value", "gradient", "mean", "square"};
    uint32_t *const to[] = {&m->value, &m->gradient, &m->moments[0], &m->moments[1]};
    bool room = true;
    for (uint32_t i = 0; room && i < 4u - m->coded; i++) {
        const bool codes = i == 2 && m->coded;
        char name[80];
        snprintf(name, sizeof name, "train.%u.%s.%c.%s", m->layer,
                 format_lora_target_name(m->target), m->is_b ? 'b' : 'a',
                 codes ? "moments" : what[i]);
        *to[i] = store_add_state(&e->store, name, codes ? TYPE_I16 : TYPE_F32, 2, m->dim,
                                 GROUP_TRAIN + i);
        room = *to[i] != UINT32_MAX;
    }
    return room;
}

static beryl_status lay_out(beryl_train *t, beryl_error *error) {
    beryl_engine *e = t->engine;
    train_adapter *a = &t->adapter;
    const uint32_t n_pair = (e->model.config.n_layer + 1) * LORA_COUNT;
    a->graph.pairs = base_arena_take(&t->arena, n_pair, sizeof *a->graph.pairs);
    if (!a->graph.pairs) return base_no_memory(error);
    for (uint32_t i = 0; i < n_pair; i++)
        a->graph.pairs[i] = (gemma4_lora_pair){.a = GEMMA4_NONE, .b = GEMMA4_NONE};
    t->mark = store_mark_of(&e->store);
    t->extended = true; /* so that they are dropped */
    for (uint32_t i = 0; i < a->n; i++) {
        train_matrix *m = &a->matrices[i];
        if (!add_states(e, m)) return base_no_memory(error);
        gemma4_lora_pair *pair = &a->graph.pairs[gemma4_lora_at(&e->model, m->target, m->layer)];
        *(m->is_b ? &pair->b : &pair->a) = m->value;
        pair->n = 1;
        pair->factor = m->factor;
        t->report.parameters += (uint64_t)m->dim[0] * m->dim[1];
    }
    return store_extend(&e->store, &t->mark, e->options.memory, error);
}

/* ---- first values ---------------------------------------------------------------------------- */

beryl_status train_state_put(beryl_train *t, uint32_t state, const void *from, beryl_error *error) {
    beryl_status status = BERYL_OK;
    const uint64_t size = store_state_bytes(&t->engine->store, state);
    for (uint64_t at = 0, piece; status == BERYL_OK && at < size; at += piece) {
        piece = size - at < STORE_READ_MAX ? size - at : STORE_READ_MAX;
        status = store_state_write(&t->engine->store, state, at, (const char *)from + at,
                                   (size_t)piece, error);
    }
    return status;
}

static const format_lora_part *part_of(const format_lora *l, const train_matrix *m) {
    const format_lora_part *p = l->parts;
    while (p->target != m->target || p->layer != m->layer) p++;
    return p;
}

/* Those of the adapter; of a new one A is uniform, as wide as its inputs are many, and B is 0. */
static void fill(const train_matrix *m, const format_lora *from, base_random *random, float *out) {
    const format_lora_part *p = from ? part_of(from, m) : NULL;
    const bool by_rank = !m->is_b && m->target != LORA_EMBED; /* a row is a rank's */
    const double bound = m->is_b ? 0 : 1 / sqrt((double)m->in);
    for (uint32_t i = 0; i < m->dim[0]; i++)
        for (uint32_t k = 0; k < m->dim[1]; k++) {
            float *to = &out[(size_t)i * m->dim[1] + k];
            const uint32_t rank = by_rank ? i : k, other = by_rank ? k : i;
            if (p) {
                const format_lora_half *half = m->is_b ? &p->b : &p->a;
                *to = format_lora_value(half, rank * half->stride[1] + other * half->stride[2]);
            } else {
                *to = (float)((2 * base_random_unit(random) - 1) * bound);
            }
        }
}

static beryl_status fill_all(beryl_train *t, const format_lora *from, beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    base_random random = {t->options.seed};
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < t->adapter.n; i++) {
        const train_matrix *m = &t->adapter.matrices[i];
        const size_t n = (size_t)m->dim[0] * m->dim[1];
        float *values = base_heap_take(heap, n * sizeof *values);
        if (!values) return base_no_memory(error);
        fill(m, from, &random, values);
        status = train_state_put(t, m->value, values, error);
        base_heap_give(heap, values, n * sizeof *values);
    }
    return status;
}

static beryl_status make_from(beryl_train *t, const format_lora *from, beryl_error *error) {
    matrix_list list = {0};
    beryl_status status = BERYL_OK;
    for (size_t i = 0; from && status == BERYL_OK && i < from->n_part; i++)
        status = is_of_experts(from->parts[i].target)
                     ? base_fail(error, BERYL_UNSUPPORTED,
                                 "'%.200s': adapters of experts are not trained",
                                 t->options.init ? t->options.init : "adapter")
                     : add_part(t, &from->parts[i], &list, error);
    if (!from) status = add_targets(t, &list, error);
    if (status == BERYL_OK && !list.count)
        status = base_fail(error, BERYL_UNSUPPORTED, "the model uses none of these matrices");
    t->adapter.n = (uint32_t)list.count;
    t->adapter.matrices = base_arena_take(&t->arena, list.count, sizeof *t->adapter.matrices);
    if (status == BERYL_OK && !t->adapter.matrices) status = base_no_memory(error);
    if (status == BERYL_OK) memcpy(t->adapter.matrices, list.data, list.count * sizeof *list.data);
    base_vec_fini(&t->engine->heap, &list);
    if (status == BERYL_OK && t->options.live) status = train_live_make(t, error);
    if (status == BERYL_OK) status = lay_out(t, error);
    return status == BERYL_OK ? fill_all(t, from, error) : status;
}

beryl_status train_adapter_make(beryl_train *t, beryl_error *error) {
    const beryl_adapter *given = t->options.from;
    if (given) return make_from(t, engine_adapter_lora(given), error);
    if (!t->options.init) return make_from(t, NULL, error);
    base_heap *heap = &t->engine->heap;
    engine_adapter_file file;
    beryl_status status = engine_adapter_file_open(heap, t->options.init, &file, error);
    if (status != BERYL_OK) return status;
    status = make_from(t, &file.lora, error);
    engine_adapter_file_close(heap, &file);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

beryl_status train_state_get(beryl_train *t, uint32_t state, void *out, beryl_error *error) {
    graph_store *store = &t->engine->store;
    const uint64_t size = store_state_bytes(store, state);
    /* results of answers' steps that nobody waits for are gone after a few submits */
    beryl_status status = engine_drain(t->engine, error);
    for (uint64_t at = 0, piece; status == BERYL_OK && at < size; at += piece) {
        const void *from;
        device_ticket ticket = 0;
        piece = size - at < STORE_READ_MAX ? size - at : STORE_READ_MAX;
        status = store_state_read(store, state, at, (size_t)piece, &ticket, error);
        if (status == BERYL_OK && store->device) status = device_wait(store->device, ticket, error);
        if (status == BERYL_OK)
            status = store_state_read_step(store, state, at, ticket, &from, error);
        if (status == BERYL_OK) memcpy((char *)out + at, from, (size_t)piece);
        if (store->device && ticket) device_fetch_drop(store->device, ticket);
    }
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

void train_part_set(format_lora_part *p, const train_matrix *m, const float *values) {
    if (!m->is_b)
        *p = (format_lora_part){.target = m->target,
                                .layer = m->layer,
                                .n_expert = 1,
                                .rank = m->rank,
                                .in = m->in,
                                .out = m->out,
                                .factor = m->factor};
    const bool by_rank = !m->is_b && m->target != LORA_EMBED;
    const uint64_t n = (uint64_t)m->dim[0] * m->dim[1];
    format_lora_half *half = m->is_b ? &p->b : &p->a;
    *half = (format_lora_half){.type = TYPE_F32,
                               .data = (const uint8_t *)values,
                               .n_dim = 2,
                               .dim = {m->dim[0], m->dim[1]},
                               .stride = {n, by_rank ? m->in : 1, by_rank ? 1 : m->rank}};
}

/* The states `which` of all matrices as an adapter's file. */
static beryl_status write_file(beryl_train *t, bool gradients, format_lora_form form,
                               const char *path, beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    const train_adapter *a = &t->adapter;
    format_lora lora = {.n_part = a->n / 2};
    base_arena arena;
    base_arena_init(&arena, heap);
    lora.parts = base_arena_take(&arena, lora.n_part, sizeof *lora.parts);
    beryl_status status = lora.parts ? BERYL_OK : base_no_memory(error);
    for (uint32_t i = 0; status == BERYL_OK && i < a->n; i++) {
        const train_matrix *m = &a->matrices[i];
        const size_t n = (size_t)m->dim[0] * m->dim[1];
        float *values = base_arena_take(&arena, n, sizeof *values);
        if (!values) status = base_no_memory(error);
        if (values) status = train_state_get(t, gradients ? m->gradient : m->value, values, error);
        train_part_set(&lora.parts[i / 2], m, values);
        if (m->rank > lora.rank) lora.rank = m->rank;
    }
    const format_lora_write_desc desc = {
        .lora = &lora, .form = form, .type = TYPE_F32, .alone = gradients};
    if (status == BERYL_OK) status = format_lora_write(heap, &desc, path, error);
    base_arena_fini(&arena);
    return status;
}

static beryl_status save(beryl_train *t, bool gradients, const char *path, const char *form,
                         beryl_error *error) {
    format_lora_form f;
    if (!t || !path || !engine_adapter_form(form ? form : "peft", &f))
        return base_fail(error, BERYL_MISUSE,
                         "saving needs a training, a path, and peft, gguf or rullama");
    return t->task ? base_fail(error, BERYL_MISUSE, "a task of this training is running")
                   : write_file(t, gradients, f, path, error);
}

beryl_status beryl_train_save(beryl_train *t, const char *path, const char *form,
                              beryl_error *error) {
    return save(t, false, path, form, error);
}

beryl_status beryl_train_save_gradients(beryl_train *t, const char *path, beryl_error *error) {
    return save(t, true, path, NULL, error);
}
