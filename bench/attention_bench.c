/* attention_bench.c - how long a decode step's attention takes: forms of attention_lanes and attention_merge, many dispatches
 * one after another between two timestamps, each on caches of its own, so that these come from memory as they do in a model.
 *
 *   attention_bench [DEVICE] [WORD]      WORD: only shapes whose name contains it
 *
 * Queries, keys and values before their norms and rotations; F16 caches; one row. */
#include "kernels/kernels.h"

#include "base/thread.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DISPATCHES = 128, ROUNDS = 4, SETS_MAX = 128, PROGRAMS_MAX = 256 };

typedef struct shape { const char *name; uint32_t n_head, n_kv, d, window; } shape;

static const shape shapes[] = {
    {"E2B-sliding", 8, 1, 256, 512},
    {"E2B-global", 8, 1, 512, 0},
    {"26B-sliding", 16, 8, 256, 1024},
    {"26B-global", 16, 2, 512, 0},
};

typedef struct form { uint32_t heads, threads, keys, piece, n_split; bool owner, held; } form;

typedef struct bench {
    base_heap heap;
    base_arena arena;
    device *d;
    beryl_error error;
    device_buffer small, k, v, partial, stats, out;
    uint64_t cache_bytes; /* of k and of v */
    struct { uint64_t hash; device_program program; } programs[PROGRAMS_MAX];
    uint32_t n_program;
} bench;

static void say(const bench *b, const char *what) {
    fprintf(stderr, "attention_bench: %s: %s\n", what, b->error.message);
    exit(1);
}

static device_buffer buffer_of(bench *b, uint64_t bytes) {
    device_buffer buffer;
    if (device_buffer_make(b->d, bytes, "bench", &buffer, &b->error)) say(b, "buffer");
    return buffer;
}

static void number(const kernels_text *k, uint32_t *params, const char *name, uint32_t value) {
    int at = kernels_param_find(k, name);
    if (at >= 0) params[at] = value;
}

static void real(const kernels_text *k, uint32_t *params, const char *name, float value) {
    int at = kernels_param_find(k, name);
    if (at >= 0) memcpy(&params[at], &value, 4);
}

typedef struct step { device_program program; device_bindings bindings[SETS_MAX]; uint32_t groups[3], params[DEVICE_PARAM_ALIGN / 4]; } step;

typedef struct range { const char *name; device_binding at; uint64_t stride; } range;

static bool program_of(bench *b, const char *name, const kernels_text *k, device_program *out) {
    for (uint32_t i = 0; i < b->n_program; i++)
        if (b->programs[i].hash == k->hash) return *out = b->programs[i].program, true;
    device_program_desc desc = {.language = DEVICE_WGSL, .source = k->text, .source_size = k->size, .label = name,
        .n_binding = k->n_binding, .param_bytes = k->n_param * 4, .uses_f16 = k->uses_f16, .uses_subgroups = k->uses_subgroups, .trusted = true};
    for (uint32_t i = 0; i < k->n_binding; i++) desc.access[i] = k->bindings[i].access;
    memcpy(desc.workgroup, k->workgroup, sizeof desc.workgroup);
    if (b->n_program == PROGRAMS_MAX || device_program_make(b->d, &desc, out, &b->error)) return false;
    beryl_status status;
    while ((status = device_program_status(b->d, *out, &b->error)) == BERYL_PENDING) base_sleep(1e-3);
    if (status != BERYL_OK) return false;
    b->programs[b->n_program].hash = k->hash;
    b->programs[b->n_program++].program = *out;
    return true;
}

/* Compiles and binds, n_set times with ranges moved by their strides. */
static bool step_make(bench *b, const kernels_request *request, const range *ranges, uint32_t n_range, uint32_t n_set, kernels_text *k, step *s) {
    if (kernels_build(&b->arena, request, k, &b->error)) say(b, request->file);
    if (!program_of(b, request->file, k, &s->program)) return false;
    for (uint32_t set = 0; set < n_set; set++) {
        device_binding bound[DEVICE_BINDING_MAX];
        for (uint32_t i = 0; i < k->n_binding; i++)
            for (uint32_t r = 0; r < n_range; r++)
                if (!strcmp(ranges[r].name, k->bindings[i].name)) {
                    bound[i] = ranges[r].at;
                    bound[i].offset += set * ranges[r].stride;
                }
        if (device_bindings_make(b->d, s->program, bound, k->n_binding, &s->bindings[set], &b->error)) say(b, "bindings");
    }
    return true;
}

static void step_drop(bench *b, step *s, uint32_t n_set) {
    for (uint32_t i = 0; i < n_set; i++) device_bindings_drop(b->d, s->bindings[i]);
}

/* Microseconds a round of all steps, best of ROUNDS. */
static double time_of(bench *b, const step *steps, uint32_t n_step, uint32_t n_set) {
    static device_command list[DISPATCHES * 2 + 2];
    uint32_t n = 0;
    uint32_t params[2][DEVICE_PARAM_ALIGN / 4];
    double best = 1e30;
    list[n++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < DISPATCHES; i++)
        for (uint32_t s = 0; s < n_step; s++) {
            device_command *c = &list[n++];
            *c = (device_command){.kind = DEVICE_DISPATCH};
            c->dispatch.program = steps[s].program;
            c->dispatch.bindings = steps[s].bindings[i % n_set];
            memcpy(c->dispatch.groups, steps[s].groups, sizeof c->dispatch.groups);
            c->dispatch.param_offset = s * DEVICE_PARAM_ALIGN;
        }
    list[n++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t s = 0; s < n_step; s++) memcpy(params[s], steps[s].params, DEVICE_PARAM_ALIGN);
    for (int round = 0; round < ROUNDS; round++) {
        device_ticket ticket;
        uint64_t ns[2] = {0};
        uint32_t n_stamp = 2;
        const device_submit_desc desc = {list, n, params, n_step * DEVICE_PARAM_ALIGN};
        if (device_submit(b->d, &desc, &ticket, &b->error) || device_wait(b->d, ticket, &b->error)) say(b, "run");
        if (device_stamps(b->d, ticket, ns, &n_stamp, &b->error)) say(b, "stamps");
        device_fetch_drop(b->d, ticket);
        const double us = (double)(ns[1] - ns[0]) * 1e-3 / DISPATCHES;
        if (us < best) best = us;
    }
    return best;
}

static void params_of(const kernels_text *k, uint32_t *p, const shape *s, const form *f, uint32_t n_row) {
    number(k, p, "n_head", s->n_head);
    number(k, p, "n_kv", s->n_kv);
    number(k, p, "n_row", n_row);
    number(k, p, "n_split", f->n_split);
    number(k, p, "window", s->window);
    real(k, p, "scale", 0.1f);
    real(k, p, "eps", 1e-6f);
    number(k, p, "q0", s->n_head * s->d / 4);
    number(k, p, "q1", s->d / 4);
    number(k, p, "n", 1);
    number(k, p, "rows", 1);
}

static void run(bench *b, const shape *s, uint32_t depth, const form *f, bool merge) {
    char text[10][16];
    const uint32_t n_row = s->window && s->window < depth + 64 ? s->window : depth + 64;
    const uint64_t set_bytes = ((uint64_t)n_row * s->n_kv * s->d * 2 + 255) / 256 * 256;
    uint32_t n_set = (uint32_t)(b->cache_bytes / set_bytes), join = f->heads;
    if (n_set > SETS_MAX) n_set = SETS_MAX;
    const uint32_t size = device_caps_of(b->d)->subgroup_size, lanes = size < 32 ? 8 : 32, groups = f->threads / lanes;
    while (groups * join * s->d * 4 > 32 << 10 && join > 1) join /= 2;
    kernels_request r = {.file = "attention_lanes"};
    const struct { const char *name; uint32_t value; } numbers[] = {{"THREADS", f->threads}, {"LANES", lanes}, {"D4", s->d / 4},
        {"HEADS", f->heads}, {"KEYS", f->keys}, {"JOIN", join}, {"PIECE", f->piece}};
    uint32_t n = 0;
    for (; n < sizeof numbers / sizeof *numbers; n++) {
        snprintf(text[n], sizeof text[n], "%uu", numbers[n].value);
        r.options[n] = (kernels_option){numbers[n].name, text[n]};
    }
    r.options[n++] = (kernels_option){"HELD", f->held ? "true" : "false"};
    r.options[n++] = (kernels_option){"SPLIT", f->n_split > 1 ? "true" : "false"};
    r.parts[0] = (kernels_part){"start", "attention_lanes_heads", NULL};
    r.parts[1] = (kernels_part){"cache", f->owner ? "cache_eight_own_f16" : "cache_eight_f16", NULL};
    if (f->owner) {
        r.parts[2] = (kernels_part){"half_bits", "half_bits", NULL};
    } else {
        r.parts[2] = (kernels_part){"fresh", "attention_lanes_fresh_none", NULL};
        r.options[n++] = (kernels_option){"FRESH", "false"};
    }
    const uint64_t part = 64 << 10; /* of the buffer of small things */
    const range ranges[] = {{"q", {b->small, 0, part}, 0}, {"key", {b->small, part, part}, 0}, {"value", {b->small, 2 * part, part}, 0},
        {"norms", {b->small, 3 * part, part}, 0}, {"angles", {b->small, 4 * part, part}, 0}, {"slot", {b->small, 5 * part, 256}, 0},
        {"pos", {b->small, 6 * part, 256}, 0}, {"k_cache", {b->k, 0, set_bytes}, set_bytes}, {"v_cache", {b->v, 0, set_bytes}, set_bytes},
        {"partial", {b->partial, 0, 0}, 0}, {"stats", {b->stats, 0, 0}, 0}, {"out", {b->partial, 0, 0}, 0}};
    const uint32_t n_range = sizeof ranges / sizeof *ranges;
    device_write(b->d, b->small, 6 * part, &depth, 4, &b->error);
    static step steps[2];
    kernels_text k;
    if (!step_make(b, &r, ranges, n_range, n_set, &k, &steps[0])) {
        printf("%-12s depth %5u: %s\n", s->name, depth, b->error.message);
        return;
    }
    params_of(&k, steps[0].params, s, f, n_row);
    memcpy(steps[0].groups, (uint32_t[]){f->n_split, s->n_head / f->heads, 1}, sizeof steps[0].groups);
    printf("%-12s depth %5u %s %s heads %u threads %3u keys %u piece %3u splits %3u: ", s->name, depth, f->owner ? "own " : "read",
           f->held ? "held" : "    ", f->heads, f->threads, f->keys, f->piece, f->n_split);
    printf("%7.2f us", time_of(b, steps, 1, n_set));
    if (merge) {
        kernels_request m = {.file = "attention_merge",
            .options = {{"D4", text[2]}, {"COLUMNS", "16u"}, {"PARTS", "16u"}, {"EACH", f->n_split > 64 ? "8u" : "4u"}}};
        range moved[sizeof ranges / sizeof *ranges];
        memcpy(moved, ranges, sizeof ranges);
        moved[n_range - 1].at.buffer = b->out;
        if (step_make(b, &m, moved, n_range, n_set, &k, &steps[1])) {
            params_of(&k, steps[1].params, s, f, n_row);
            memcpy(steps[1].groups, (uint32_t[]){s->n_head * (s->d / 4 / 16), 1, 1}, sizeof steps[1].groups);
            printf(", with merge %7.2f us", time_of(b, steps, 2, n_set));
            step_drop(b, &steps[1], n_set);
        }
    }
    printf("\n");
    fflush(stdout);
    step_drop(b, &steps[0], n_set);
}

/* Near: few pieces, few heads a workgroup. Far: many. */
static void sweep(bench *b, const shape *s, uint32_t depth, bool tiny) {
    static const uint32_t near_splits[] = {4, 8}, far_splits[] = {16, 32, 64, 128};
    const bool far = !s->window && depth > 512;
    const uint32_t group = s->n_head / s->n_kv;
    for (uint32_t heads = far ? 2 : 1; heads <= (far ? 4u : 2u) && heads <= group; heads *= 2)
        for (uint32_t threads = tiny ? 64 : 128; threads <= (tiny ? 64u : 256u); threads *= 2)
            for (int held = 0; held < 2; held++)
                for (uint32_t k = 0; k < (far ? 4u : 2u); k++) {
                    const form f = {heads, threads, 4, 32, far ? far_splits[k] : near_splits[k], true, held};
                    run(b, s, depth, &f, threads == 256 && (far || k == 1));
                }
    const form read = {far && group > 2 ? 4 : 1, tiny ? 64 : 256, 4, 32, far ? 64 : 8, false, !far};
    run(b, s, depth, &read, false);
}

int main(int argc, char **argv) {
    static const uint32_t depths[] = {100, 512, 4096, 16384};
    static bench b;
    base_heap_init(&b.heap, NULL);
    base_arena_init(&b.arena, &b.heap);
    const char *word = argc > 2 ? argv[2] : "";
    if (device_open(&b.heap, NULL, argc > 1 ? argv[1] : NULL, &b.d, &b.error)) say(&b, "device");
    const device_caps *caps = device_caps_of(b.d);
    const bool tiny = caps->kind == DEVICE_SOFTWARE;
    printf("%s, subgroups of %u, %u bytes of workgroup memory\n", caps->name, caps->subgroup_size, caps->workgroup_bytes);
    if (!caps->timestamps || caps->subgroup_size < 8) return puts("needs timestamps and subgroups"), 0;
    b.cache_bytes = tiny ? 64 << 20 : 256 << 20;
    b.small = buffer_of(&b, 512 << 10);
    b.k = buffer_of(&b, b.cache_bytes);
    b.v = buffer_of(&b, b.cache_bytes);
    b.partial = buffer_of(&b, 8 << 20);
    b.stats = buffer_of(&b, 64 << 10);
    b.out = buffer_of(&b, 64 << 10);
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t j = 0; j < sizeof depths / sizeof *depths; j++)
            if (strstr(shapes[i].name, word) && (!shapes[i].window || depths[j] <= 4 * shapes[i].window)) sweep(&b, &shapes[i], depths[j], tiny);
    device_close(b.d);
    return 0;
}
