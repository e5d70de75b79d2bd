/* matvec_bench.c - how fast the matvec kernel reads weights, in the form that matvec_choose
 * gives or in all of them.
 *
 *   matvec_bench [DEVICE] [sweep | WG,LANES,ROWS,N_X,DEPTH,RESIDENT] [WORD] [--checked]
 *   sweep  every form, the best ones of each shape last: what matvec_choose should choose
 *   WG,... this form of the kernel for a batch (matvec_batch.wgsl), where it fits, beside the
 *   others WORD   only shapes whose line contains it;  --checked  compiled with the driver's bounds
 *   checks
 *
 * Shapes with more than one vector, and those marked so, are timed in both kernels, one row
 * each.
 *
 * Every dispatch reads another copy of the weights, so that no cache holds them, and waits for
 * the one before, as in a model. Times are the device's own, from the first dispatch's start to
 * the last one's end. */
#include "kernels/lower/matvec.h"
#include "graph/pack.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A GPU that was idle, while a program was compiled, takes a while to clock up again. */
#define WARM_SECONDS 0.05
enum { COPIES_MAX = 64, ROUNDS = 8, BEST = 6, X_BYTES = 32 << 20 };

typedef struct shape {
    base_type type;
    uint32_t n, k, m, per;
    bool normed; /* with the prologue that takes a branch into the stream and norms it */
    bool exact;
    bool both; /* one vector in the kernel for a batch too */
} shape;

static const shape shapes[] = {
    {TYPE_Q4_K, 1, 1536, 1179648, 1, false, false, false}, /* 1 GB */
    {TYPE_Q4_K, 1, 1536, 1179648, 1, false, true, false},
    {TYPE_Q6_K, 1, 1536, 262144, 1, false, false, false},
    {TYPE_Q4_K, 1, 1536, 2560, 1, true, false, false},
    {TYPE_Q4_K, 1, 2048, 1536, 1, false, false, false},
    {TYPE_Q4_K, 1, 1536, 6144, 2, true, false, false},
    {TYPE_Q4_K, 1, 1536, 12288, 2, true, false, false},
    {TYPE_Q4_K, 1, 6144, 1536, 1, false, false, false},
    {TYPE_Q4_K, 1, 12288, 1536, 1, false, false, false},
    {TYPE_Q6_K, 1, 12288, 1536, 1, false, false, false},
    {TYPE_Q4_K, 1, 1536, 256, 1, true, false, false},
    {TYPE_Q4_K, 1, 256, 1536, 1, false, false, false},
    {TYPE_BF16, 1, 1536, 8960, 1, false, false, false},
    {TYPE_Q4_K, 1, 1536, 12288, 2, true, true, false},
    {TYPE_Q4_K, 1, 12288, 1536, 1, false, true, false},
    {TYPE_Q4_K, 1, 2560, 10240, 2, true, false, false},
    {TYPE_Q4_K, 1, 10240, 2560, 1, false, false, false},
    {TYPE_Q4_K, 1, 1536, 12288, 2, false, false, true},
    {TYPE_Q4_K, 2, 1536, 12288, 2, false, false, false},
    {TYPE_Q4_K, 4, 1536, 12288, 2, false, false, false},
    {TYPE_Q4_K, 8, 1536, 12288, 2, false, false, false},
    {TYPE_Q4_K, 16, 1536, 12288, 2, false, false, false},
    {TYPE_Q4_K, 16, 1536, 6144, 2, false, false, false},
    {TYPE_Q4_K, 1, 12288, 1536, 1, false, false, true},
    {TYPE_Q4_K, 2, 12288, 1536, 1, false, false, false},
    {TYPE_Q4_K, 4, 12288, 1536, 1, false, false, false},
    {TYPE_Q4_K, 8, 12288, 1536, 1, false, false, false},
    {TYPE_Q4_K, 16, 12288, 1536, 1, false, false, false},
    {TYPE_Q6_K, 16, 12288, 1536, 1, false, false, false},
    {TYPE_Q4_K, 16, 1536, 2560, 1, false, false, false},
    {TYPE_Q4_K, 16, 2048, 1536, 1, false, false, false},
    {TYPE_Q6_K, 8, 1536, 262144, 1, false, false, false},
    {TYPE_Q6_K, 16, 1536, 262144, 1, false, false, false},
};

typedef struct bench {
    base_heap heap;
    base_arena arena;
    device *d;
    device_buffer weights, x, quantised, norms, branch, stream, out;
    uint64_t weight_bytes;
    bool sweep, checked;
    matvec_choice form; /* of the kernel for a batch; share 0: none given */
    beryl_error error;
} bench;

typedef struct result {
    double seconds;
    matvec_choice choice;
} result;

static bool put(uint32_t *params, const kernels_text *k, const char *name, uint32_t value) {
    const int i = kernels_param_find(k, name);
    if (i >= 0) params[i] = value;
    return i >= 0;
}

static uint32_t groups_of(const shape *s, const matvec_choice *c) {
    const uint32_t tiles = (s->m + matvec_tile(c) - 1) / matvec_tile(c);
    return tiles < c->groups ? tiles : c->groups;
}

static matvec_shape shape_of(const shape *s) {
    return (matvec_shape){.n_segment = 1,
                          .types = {s->type},
                          .rows = {s->m},
                          .k = s->k,
                          .n_x = s->n,
                          .per = s->per,
                          .exact = s->exact,
                          .has_prologue = s->normed};
}

static beryl_status build(bench *b, const shape *s, const matvec_choice *c, kernels_text *k) {
    const matvec_shape ms = shape_of(s);
    lower_request r = {0};
    matvec_choice asked = *c;
    asked.once = (s->m + matvec_tile(c) - 1) / matvec_tile(c) <= c->groups;
    matvec_request(&r, &ms, &asked, NULL);
    if (s->normed) {
        lower_request_part(&r, "prologue", "matvec_prologue_add_norm");
        lower_request_flag(&r, "SCALED", true);
        if (c->subgroups) {
            lower_request_part(&r, "sum", "matvec_sum_subgroup");
            lower_request_number(&r, "SPAN", matvec_span(&b->d->caps, c));
        }
    }
    lower_request_part(&r, "epilogue", s->per == 2 ? "matvec_store_geglu" : "matvec_store");
    return kernels_build(&b->arena, &r.kernel, k, &b->error);
}

static beryl_status make(bench *b, const kernels_text *k, device_program *program,
                         device_bindings *bindings) {
    const struct {
        const char *name;
        device_buffer buffer;
    } known[] = {{"weights", b->weights}, {"x", b->x},           {"norms", b->norms},
                 {"branch", b->branch},   {"stream", b->stream}, {"PART_out", b->out}};
    device_binding bound[DEVICE_BINDING_MAX] = {0};
    device_program_desc desc = {.source = k->text,
                                .source_size = k->size,
                                .label = "matvec",
                                .n_binding = k->n_binding,
                                .param_bytes = k->n_param * 4,
                                .uses_f16 = k->uses_f16,
                                .uses_subgroups = k->uses_subgroups,
                                .trusted = !b->checked};
    memcpy(desc.workgroup, k->workgroup, sizeof desc.workgroup);
    for (uint32_t i = 0; i < k->n_binding; i++) {
        desc.access[i] = k->bindings[i].access;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            if (!strcmp(k->bindings[i].name, known[j].name)) bound[i].buffer = known[j].buffer;
    }
    beryl_status status = device_program_make(b->d, &desc, program, &b->error);
    while (status == BERYL_OK &&
           (status = device_program_status(b->d, *program, &b->error)) == BERYL_PENDING) {
        base_sleep(2e-4);
        status = BERYL_OK;
    }
    return status == BERYL_OK
               ? device_bindings_make(b->d, *program, bound, k->n_binding, bindings, &b->error)
               : status;
}

/* Seconds of one dispatch; negative: it did not run. */
static double time_of(bench *b, const shape *s, const matvec_choice *c) {
    kernels_text k;
    device_program program;
    device_bindings bindings;
    graph_pack_layout layout;
    static uint32_t params[COPIES_MAX][DEVICE_PARAM_ALIGN / 4];
    static device_command commands[COPIES_MAX + 2];
    if (build(b, s, c, &k) || make(b, &k, &program, &bindings))
        return fprintf(stderr, "%s\n", b->error.message), -1;
    graph_pack_layout_of(s->type, (uint64_t)s->m * s->per, s->k, &layout);
    const uint64_t most = b->weight_bytes / layout.bytes;
    const uint32_t copies = most > COPIES_MAX ? COPIES_MAX
                            : most == 0       ? 1
                                              : (uint32_t)most,
                   n = copies < 4 ? 4 : copies;
    uint32_t at = 0;
    commands[at++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *p = params[i];
        const uint32_t first = (uint32_t)((i % copies) * layout.bytes / 4);
        put(p, &k, "n_tile", (s->m + matvec_tile(c) - 1) / matvec_tile(c));
        put(p, &k, "n_x", s->n), put(p, &k, "k", s->k), put(p, &k, "x_stride", s->k),
            put(p, &k, "x_offset", 0);
        put(p, &k, "PART_k", s->k), put(p, &k, "PART_rows", s->m), put(p, &k, "PART_first", 0);
        for (uint32_t j = 0; j < PACK_PLANE_MAX; j++) {
            char name[16];
            const uint32_t word = first + (uint32_t)(layout.offset[j] / 4);
            snprintf(name, sizeof name, "PART_plane%u", j), put(p, &k, name, word);
            snprintf(name, sizeof name, "PART_up%u", j),
                put(p, &k, name, word + layout.row_bytes[j] / 4 * s->m);
        }
        put(p, &k, "PART_out_offset", 0), put(p, &k, "PART_out_stride", s->m);
        put(p, &k, "branch_offset", 0), put(p, &k, "branch_stride", s->k),
            put(p, &k, "stream_offset", 0), put(p, &k, "stream_stride", s->k);
        put(p, &k, "norm", 0), put(p, &k, "norm_branch", s->k), put(p, &k, "scale", 0);
        device_command *command = &commands[at++];
        *command = (device_command){.kind = DEVICE_DISPATCH};
        command->dispatch.program = program;
        command->dispatch.bindings = bindings;
        command->dispatch.groups[0] = groups_of(s, c);
        command->dispatch.groups[1] = (s->n + c->n_x - 1) / c->n_x;
        command->dispatch.groups[2] = 1;
        command->dispatch.param_offset = i * DEVICE_PARAM_ALIGN;
    }
    commands[at++] = (device_command){.kind = DEVICE_STAMP};
    double best = -1;
    const double first = base_time();
    for (int round = 0; round < ROUNDS || base_time() - first < WARM_SECONDS; round++) {
        device_ticket ticket;
        uint64_t ns[2];
        uint32_t n_stamp = 2;
        const double start = base_time();
        beryl_status status =
            device_submit(b->d, &(device_submit_desc){commands, at, params, n * DEVICE_PARAM_ALIGN},
                          &ticket, &b->error);
        if (status == BERYL_OK) status = device_wait(b->d, ticket, &b->error);
        double seconds = base_time() - start;
        if (status != BERYL_OK) return fprintf(stderr, "%s\n", b->error.message), -1;
        if (device_stamps(b->d, ticket, ns, &n_stamp, &b->error) == BERYL_OK && n_stamp == 2)
            seconds = 1e-9 * (double)(ns[1] - ns[0]);
        device_fetch_drop(b->d, ticket);
        if (best < 0 || seconds < best) best = seconds;
    }
    device_bindings_drop(b->d, bindings);
    device_program_drop(b->d, program);
    return best / n;
}

static void line(const shape *s, const matvec_choice *c, double seconds) {
    static const char *const kept[] = {"direct", "shared", "int8", "quantised"};
    const double bytes = (double)(base_type_row_bytes(s->type, s->k) * s->m * s->per);
    printf("%-5s n %2u k %5u m %7u x%u %s %s | %9.2f us %7.0f GB/s | %-9s wg %3u lanes %2u rows %u "
           "n_x %2u depth %u groups %u%s%s\n",
           base_type_name(s->type), s->n, s->k, s->m, s->per, s->normed ? "normed" : "plain ",
           s->exact ? "exact" : "fast ", seconds * 1e6, bytes / seconds * 1e-9,
           c->share ? "batch" : kept[c->x], c->wg, c->lanes, c->rows, c->n_x,
           c->depth ? c->depth : 1, groups_of(s, c), c->resident ? " resident" : "",
           c->subgroups ? "" : " no subgroups");
    fflush(stdout);
}

static void keep(result *best, double seconds, const matvec_choice *c) {
    for (int i = 0; i < BEST; i++) {
        if (best[i].seconds != 0 && best[i].seconds <= seconds) continue;
        memmove(best + i + 1, best + i, sizeof *best * (size_t)(BEST - 1 - i));
        best[i] = (result){seconds, *c};
        return;
    }
}

static void sweep(bench *b, const shape *s, const matvec_choice *chosen) {
    static const uint32_t wgs[] = {64, 128, 256}, lanes[] = {4, 8, 16, 32}, rows[] = {1, 2, 4},
                          depths[] = {1, 2}, groups[] = {132, 264, 528, 1056};
    result best[BEST + 1] = {{0}};
    const bool int8 = chosen->x == MATVEC_INT8 || chosen->x == MATVEC_QUANTISED;
    for (size_t w = 0; w < 3; w++)
        for (size_t l = 0; l < 4; l++)
            for (size_t r = 0; r < 3; r++)
                for (size_t d = 0; d < 2; d++)
                    for (size_t g = 0; g < 4; g++)
                        for (uint32_t n_x = s->n > 4 ? 4 : s->n; n_x <= s->n && n_x <= 16; n_x *= 2)
                            for (int x = 0; x < 2; x++) {
                                matvec_choice c = *chosen;
                                c.wg = wgs[w], c.lanes = lanes[l], c.rows = rows[r],
                                c.depth = depths[d], c.groups = groups[g], c.n_x = n_x;
                                c.x = int8 ? (x ? MATVEC_INT8 : MATVEC_QUANTISED)
                                      : x  ? MATVEC_SHARED
                                           : MATVEC_DIRECT;
                                const uint32_t tiles =
                                    (s->m + matvec_tile(&c) - 1) / matvec_tile(&c);
                                const bool pointless =
                                    (s->normed && !x) || (g > 0 && tiles <= groups[g - 1]) ||
                                    c.rows * n_x * s->per > 32 || (c.lanes == 4 && s->m < 100000) ||
                                    (x && s->n > 1 && !s->normed);
                                if (pointless || (x && (uint64_t)s->k * n_x * (int8 ? 5 : 16) / 4 >
                                                           b->d->caps.workgroup_bytes))
                                    continue;
                                const double seconds = time_of(b, s, &c);
                                if (seconds > 0) keep(best, seconds, &c);
                            }
    for (int i = BEST - 1; i >= 0; i--)
        if (best[i].seconds != 0) line(s, &best[i].choice, best[i].seconds);
}

/* Forms of the kernel for a batch: enough lanes for the device, and not more than four times as
 * many. */
static void sweep_batch(bench *b, const shape *s) {
    static const uint32_t wgs[] = {128, 192, 256, 384, 512}, splits[] = {1, 2, 4, 6, 8, 12, 16},
                          depths[] = {1, 2, 4};
    const device_caps *caps = device_caps_of(b->d);
    const matvec_shape ms = shape_of(s);
    const uint32_t units = caps->compute_units ? caps->compute_units : 128,
                   most = (s->n + 3) / 4 * 4;
    result best[BEST + 1] = {{0}};
    for (size_t w = 0; w < sizeof wgs / sizeof *wgs; w++)
        for (size_t p = 0; p < sizeof splits / sizeof *splits; p++)
            for (uint32_t rows = 1; rows * s->per <= 4; rows *= 2)
                for (uint32_t n_x = most > 8 ? most / 2 : most; n_x <= most && n_x <= 16; n_x *= 2)
                    for (uint32_t d = 0; d < 4; d++) {
                        matvec_choice c = {.x = MATVEC_QUANTISED,
                                           .wg = wgs[w],
                                           .lanes = 4 * splits[p],
                                           .rows = rows,
                                           .n_x = n_x,
                                           .share = 4,
                                           .near = 2,
                                           .subgroups = true};
                        const uint32_t steps = (s->k / 64 + c.lanes - 1) / c.lanes;
                        c.resident = d == 3;
                        c.depth = c.resident ? steps : depths[d];
                        c.groups = units * (384 / c.wg ? 384 / c.wg : 1);
                        const uint64_t lanes = (uint64_t)s->m * c.lanes / rows *
                                               ((s->n + n_x - 1) / n_x),
                                       full = (uint64_t)units * 384;
                        const bool fits = !(wgs[w] % c.lanes) && matvec_batch_fits(caps, &ms, &c) &&
                                          (c.resident || c.depth < steps);
                        if (!fits || lanes > 4 * full + 384 ||
                            (4 * lanes < full && splits[p] < 8 && steps > 1))
                            continue;
                        const double seconds = time_of(b, s, &c);
                        if (seconds > 0) keep(best, seconds, &c);
                    }
    for (int i = BEST - 1; i >= 0; i--)
        if (best[i].seconds != 0) line(s, &best[i].choice, best[i].seconds);
}

/* The kernel for a batch: swept, in the form given, and as matvec_batch_best has it. */
static void batch(bench *b, const shape *s) {
    const device_caps *caps = device_caps_of(b->d);
    const matvec_shape ms = shape_of(s);
    matvec_choice c;
    if (b->sweep) sweep_batch(b, s);
    if (b->form.share && matvec_batch_fits(caps, &ms, &b->form))
        line(s, &b->form, time_of(b, s, &b->form));
    if (matvec_batch_best(caps, &ms, &c)) line(s, &c, time_of(b, s, &c));
}

static matvec_choice form_of(const char *text) {
    matvec_choice c = {
        .x = MATVEC_QUANTISED, .groups = UINT16_MAX, .share = 4, .near = 2, .subgroups = true};
    unsigned resident;
    if (sscanf(text, "%u,%u,%u,%u,%u,%u", &c.wg, &c.lanes, &c.rows, &c.n_x, &c.depth, &resident) !=
        6)
        return (matvec_choice){0};
    c.resident = resident != 0;
    return c;
}

/* random words that are sane numbers in every type */
static beryl_status fill(bench *b, device_buffer buffer, uint64_t size) {
    enum { PIECE = 1 << 20 };
    static uint32_t words[PIECE / 4];
    uint32_t state = 1;
    for (uint32_t i = 0; i < PIECE / 4; i++)
        state = state * 1664525u + 1013904223u, words[i] = state & 0xbfffbfffu;
    beryl_status status = BERYL_OK;
    for (uint64_t at = 0; at < size && status == BERYL_OK; at += PIECE) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        status = device_write(b->d, buffer, at, words, n, &b->error);
        device_ticket done;
        if (status == BERYL_OK && at % (PIECE * 16) == 0)
            status = device_poll(b->d, &done, &b->error);
    }
    return status;
}

static beryl_status open(bench *b, const char *device_name) {
    base_heap_init(&b->heap, NULL);
    base_arena_init(&b->arena, &b->heap);
    beryl_status status =
        device_open(&b->heap, NULL, device_name ? device_name : "webgpu", &b->d, &b->error);
    if (status != BERYL_OK) return status;
    const device_caps *caps = device_caps_of(b->d);
    /* in software a few shapes take seconds, all take minutes */
    b->weight_bytes = caps->kind != DEVICE_SOFTWARE ? 1200u << 20 : b->sweep ? 64 << 20 : 8 << 20;
    if (b->weight_bytes > caps->binding_max) b->weight_bytes = caps->binding_max & ~(uint64_t)255;
    device_buffer *const small[] = {&b->x,      &b->quantised, &b->norms,
                                    &b->branch, &b->stream,    &b->out};
    status = device_buffer_make(b->d, b->weight_bytes, "weights", &b->weights, &b->error);
    if (status == BERYL_OK) status = fill(b, b->weights, b->weight_bytes);
    for (size_t i = 0; status == BERYL_OK && i < sizeof small / sizeof *small; i++) {
        status = device_buffer_make(b->d, X_BYTES, "small", small[i], &b->error);
        if (status == BERYL_OK) status = fill(b, *small[i], 1 << 20);
    }
    return status;
}

int main(int argc, char **argv) {
    bench b = {0};
    const char *name = NULL, *word = "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "sweep")) b.sweep = true;
        else if (!strcmp(argv[i], "--checked")) b.checked = true;
        else if (strchr(argv[i], ',')) b.form = form_of(argv[i]);
        else if (!name && i == 1) name = argv[i];
        else word = argv[i];
    }
    if (open(&b, name)) return fprintf(stderr, "matvec_bench: %s\n", b.error.message), 1;
    const device_caps *caps = device_caps_of(b.d);
    printf("%s (%s), subgroups of %u%s\n", caps->name, caps->driver, caps->subgroup_size,
           b.checked ? ", checked" : "");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        matvec_shape ms = shape_of(s);
        matvec_choice c;
        ms.single = true;
        char text[64];
        snprintf(text, sizeof text, "%s n %u k %u m %u x%u %s", base_type_name(s->type), s->n, s->k,
                 s->m, s->per, s->exact ? "exact" : "fast");
        const uint64_t bytes = base_type_row_bytes(s->type, s->k) * s->m * s->per + 64;
        if (!strstr(text, word) || bytes > b.weight_bytes || !matvec_choose(caps, &ms, &c))
            continue;
        if (b.sweep) sweep(&b, s, &c);
        line(s, &c, time_of(&b, s, &c));
        if (s->n > 1 || s->both) batch(&b, s);
    }
    device_close(b.d);
    base_arena_fini(&b.arena);
    return 0;
}
