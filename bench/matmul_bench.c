/* matmul_bench.c - how fast one product runs on a device.
 *
 *   matmul_bench [DEVICE] [forms | ops] [WORD] [--checked]
 *   ops    (also the default) the operations as they are lowered: GPU time by timestamps, with
 *          whatever dispatches they take
 *   forms  every form of the matmul kernels on every shape of many vectors, to see what
 *          tiled_choose should choose
 *   WORD   only lines that contain it;  --checked  compiles with the driver's bounds checks
 *
 * Weights are random, so that clocks and caches behave as they will. */
#include "plan/exec.h"
#include "kernels/lower/matvec.h"
#include "kernels/lower/tiled.h"

#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

/* A GPU that was idle, while a program was compiled, takes a while to clock up again. */
#define WARM_SECONDS 0.05
enum { REPEATS = 20, ROUNDS = 6 };

typedef struct bench {
    base_heap heap;
    device *d;
    const char *word;
    bool checked;
    beryl_error error;
} bench;

typedef struct job {
    base_type type;
    uint32_t n, k, m, n_expert, n_used;
} job;

/* Gemma 4 E2B: projections of 1536, feed-forward of 6144 and 12288; 26B-A4B: experts of 704;
 * 31B: 5376 and 21504. The small ones are for software devices. */
static const job jobs[] = {
    {TYPE_Q4_K, 1, 1536, 12288, 0, 0},   {TYPE_Q4_K, 1, 6144, 1536, 0, 0},
    {TYPE_Q8_0, 1, 1536, 2048, 0, 0},    {TYPE_Q4_K, 8, 1536, 12288, 0, 0},
    {TYPE_Q4_K, 33, 1536, 12288, 0, 0},  {TYPE_Q4_K, 64, 1536, 6144, 0, 0},
    {TYPE_Q4_K, 64, 6144, 1536, 0, 0},   {TYPE_Q4_K, 128, 1536, 6144, 0, 0},
    {TYPE_Q4_K, 512, 1536, 256, 0, 0},   {TYPE_Q4_K, 512, 1536, 2048, 0, 0},
    {TYPE_Q4_K, 512, 1536, 6144, 0, 0},  {TYPE_Q4_K, 512, 1536, 12288, 0, 0},
    {TYPE_Q6_K, 512, 6144, 1536, 0, 0},  {TYPE_Q4_K, 512, 12288, 1536, 0, 0},
    {TYPE_Q4_0, 512, 1536, 6144, 0, 0},  {TYPE_Q8_0, 512, 1536, 6144, 0, 0},
    {TYPE_BF16, 512, 1536, 6144, 0, 0},  {TYPE_F32, 512, 1536, 6144, 0, 0},
    {TYPE_Q4_K, 2048, 1536, 6144, 0, 0}, {TYPE_Q4_K, 512, 5376, 21504, 0, 0},
    {TYPE_F32, 2048, 2048, 2048, 0, 0},  {TYPE_Q8_0, 64, 512, 512, 0, 0},
    {TYPE_Q4_K, 512, 256, 1024, 0, 0},   {TYPE_F32, 64, 256, 256, 0, 0},
    {TYPE_Q4_K, 1, 2816, 1408, 128, 8},  {TYPE_Q8_0, 1, 704, 2816, 128, 8},
    {TYPE_Q5_0, 1, 704, 2816, 128, 8},   {TYPE_Q4_K, 16, 2816, 1408, 128, 8},
    {TYPE_Q4_K, 64, 2816, 1408, 128, 8}, {TYPE_Q4_K, 512, 2816, 1408, 128, 8},
    {TYPE_Q8_0, 512, 704, 2816, 128, 8}, {TYPE_Q5_0, 512, 704, 2816, 128, 8},
};
enum { N_JOB = sizeof jobs / sizeof *jobs };

static void say(const bench *b, const char *what) {
    fprintf(stderr, "%s: %s\n", what, b->error.message);
    exit(1);
}

static uint64_t weight_bytes(const job *s) {
    return base_type_row_bytes(s->type, s->k) * s->m * (s->n_expert ? s->n_expert : 1);
}

static void line_begin(const job *s, char *text, size_t size) {
    snprintf(text, size, "%-5s n %4u k %5u m %5u%s", base_type_name(s->type), s->n, s->k, s->m,
             s->n_expert ? " experts" : "");
}

static void line_end(const char *line, const job *s, const char *how, double us) {
    const double products = (double)s->n * s->k * s->m * (s->n_expert ? s->n_used : 1);
    double bytes = (double)weight_bytes(s);
    if (s->n_expert && s->n * s->n_used < s->n_expert)
        bytes *= (double)(s->n * s->n_used) / s->n_expert;
    printf("%s  %-34s %9.2f us %9.1f GFLOP/s %8.1f GB/s of weights\n", line, how, us,
           2e-3 * products / us, 1e-3 * bytes / us);
    fflush(stdout);
}

static unsigned char *noise(uint64_t size) { /* finite as f32, f16 and bf16 */
    unsigned char *p = malloc((size_t)size + 8);
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; p && i < size; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const uint64_t word = state & 0xbbffbbffbbffbbffu;
        memcpy(p + i, &word, 8);
    }
    return p;
}

/* ---- operations as they are lowered ---------------------------------------------------------- */

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

/* Microseconds of all steps, from the plan's own print; `how` gets their number. */
static double profile(const bench *b, graph_exec *e, char *how, size_t size) {
    base_text text;
    base_text_init(&text, (base_heap *)&b->heap);
    graph_exec_print(e, &text);
    double sum = 0;
    int steps = 0;
    for (const char *at = text.data; at && (at = strstr(at, " us ")) != NULL; at++) {
        const char *number = at;
        while (number > text.data && number[-1] != ' ') number--;
        sum += strtod(number, NULL);
        steps++;
    }
    base_text_fini(&text);
    snprintf(how, size, "%d dispatches", steps);
    return sum;
}

static void run_op(bench *b, const job *s, bool exact) {
    char line[128], how[64];
    line_begin(s, line, sizeof line);
    snprintf(line + strlen(line), sizeof line - strlen(line), " %s", exact ? "exact" : "fast");
    if (b->word && !strstr(line, b->word)) return;
    unsigned char *weights = noise(weight_bytes(s));
    const beryl_source source = {.size = weight_bytes(s), .user = weights, .read = source_read};
    const uint32_t dim[3] = {s->n_expert, s->m, s->k};
    graph_store store;
    if (store_init(&store, &b->heap, b->d, &source, 1, &b->error)) say(b, "store");
    const uint32_t index = store_add_weight(&store, "w", s->type, s->n_expert ? 3 : 2,
                                            s->n_expert ? dim : dim + 1, 0, 0, 0, false);
    if (store_layout(&store, 0, &b->error) || store_make(&store, &b->error)) say(b, "store");
    beryl_status status;
    while ((status = store_upload_step(&store, &b->error)) != BERYL_OK)
        if (status != BERYL_EVENT && status != BERYL_PENDING) say(b, "upload");
    graph *g = graph_open(&b->heap);
    const graph_value w = graph_stored(g, &store, index);
    graph_value x, ids = 0, out;
    if (s->n_expert) {
        x = graph_input(g, "x", TYPE_F32, 3, (graph_dim[]){{s->n, 0}, {1, 0}, {s->k, 0}});
        ids = graph_input(g, "ids", TYPE_I32, 2, (graph_dim[]){{s->n, 0}, {s->n_used, 0}});
        out = graph_matmul_id(g, x, w, ids);
    } else {
        x = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){{s->n, 0}, {s->k, 0}});
        out = graph_matmul(g, x, w);
    }
    graph_output(g, out, "out");
    graph_exec *e;
    if (graph_exec_open(g, &store, &(graph_exec_options){.exact = exact, .stamped = true}, &e,
                        &b->error))
        say(b, line);
    while ((status = graph_exec_ready(e, &b->error)) == BERYL_PENDING) base_sleep(1e-3);
    if (status != BERYL_OK) say(b, line);
    unsigned char *numbers = noise((uint64_t)s->n * s->k * 4);
    memcpy(graph_exec_input(e, x), numbers, (size_t)s->n * s->k * 4);
    int32_t *to = ids ? graph_exec_input(e, ids) : NULL;
    for (uint32_t i = 0; to && i < s->n * s->n_used; i++)
        to[i] = (int32_t)((i / s->n_used * 37 + i % s->n_used * 16 + i / s->n_used) % s->n_expert);
    double best = 0;
    for (int round = 0; round < REPEATS; round++) {
        device_ticket ticket;
        const void *data;
        if (graph_exec_submit(e, (uint32_t[GRAPH_EXTENT_MAX + 1]){0}, &out, 1, &ticket,
                              &b->error) ||
            device_wait(b->d, ticket, &b->error) ||
            graph_exec_fetched(e, ticket, 0, &data, &b->error))
            say(b, line);
        const double us = profile(b, e, how, sizeof how);
        if (round == 0 || us < best) best = us;
    }
    line_end(line, s, how, best);
    graph_exec_close(e);
    graph_close(g);
    store_fini(&store);
    free(numbers);
    free(weights);
}

/* ---- every form ------------------------------------------------------------------------------ */

typedef struct dispatch {
    device_program program;
    device_bindings bindings;
    uint32_t groups[3];
    uint32_t params[64];
} dispatch;

typedef struct named {
    const char *name;
    uint32_t value;
} named;
typedef struct bound {
    const char *name;
    device_buffer buffer;
} bound;

static dispatch dispatch_make(bench *b, base_arena *arena, const kernels_request *request,
                              const named *params, const bound *buffers) {
    kernels_text k;
    dispatch out = {.groups = {1, 1, 1}};
    if (kernels_build(arena, request, &k, &b->error)) say(b, "kernel");
    device_program_desc desc = {.language = DEVICE_WGSL,
                                .source = k.text,
                                .source_size = k.size,
                                .label = request->file,
                                .n_binding = k.n_binding,
                                .param_bytes = k.n_param * 4,
                                .uses_f16 = k.uses_f16,
                                .uses_subgroups = k.uses_subgroups,
                                .trusted = !b->checked};
    device_binding bindings[DEVICE_BINDING_MAX] = {0};
    memcpy(desc.workgroup, k.workgroup, sizeof desc.workgroup);
    for (uint32_t i = 0; i < k.n_binding; i++) {
        desc.access[i] = k.bindings[i].access;
        for (const bound *at = buffers; at->name; at++)
            if (!strcmp(at->name, k.bindings[i].name)) bindings[i].buffer = at->buffer;
    }
    for (const named *at = params; at->name; at++) {
        const int i = kernels_param_find(&k, at->name);
        if (i >= 0) out.params[i] = at->value;
    }
    if (device_program_make(b->d, &desc, &out.program, &b->error)) say(b, "program");
    beryl_status status;
    while ((status = device_program_status(b->d, out.program, &b->error)) == BERYL_PENDING)
        base_sleep(1e-3);
    if (status != BERYL_OK ||
        device_bindings_make(b->d, out.program, bindings, k.n_binding, &out.bindings, &b->error))
        say(b, "bindings");
    return out;
}

static void dispatch_drop(bench *b, dispatch *d) {
    device_bindings_drop(b->d, d->bindings);
    device_program_drop(b->d, d->program);
}

/* Microseconds of one pass over `n` dispatches. */
static double dispatch_time(bench *b, const dispatch *list, uint32_t n) {
    device_command commands[REPEATS * 3 + 2];
    unsigned char params[3 * DEVICE_PARAM_ALIGN] = {0};
    double best = 0;
    for (uint32_t i = 0; i < n; i++)
        memcpy(params + i * DEVICE_PARAM_ALIGN, list[i].params, sizeof list[i].params);
    const double first = base_time();
    for (int round = 0; round < ROUNDS || base_time() - first < WARM_SECONDS; round++) {
        uint32_t count = 0, n_stamp = 2;
        uint64_t ns[2] = {0};
        device_ticket ticket;
        commands[count++] = (device_command){.kind = DEVICE_STAMP};
        for (uint32_t i = 0; i < REPEATS * n; i++) {
            device_command *c = &commands[count++];
            *c = (device_command){
                .kind = DEVICE_DISPATCH,
                .dispatch = {
                    list[i % n].program, list[i % n].bindings, {0}, i % n * DEVICE_PARAM_ALIGN}};
            memcpy(c->dispatch.groups, list[i % n].groups, sizeof c->dispatch.groups);
        }
        commands[count++] = (device_command){.kind = DEVICE_STAMP};
        if (device_submit(b->d,
                          &(device_submit_desc){commands, count, params, n * DEVICE_PARAM_ALIGN},
                          &ticket, &b->error) ||
            device_wait(b->d, ticket, &b->error) ||
            device_stamps(b->d, ticket, ns, &n_stamp, &b->error))
            say(b, "submit");
        device_fetch_drop(b->d, ticket);
        const double us = (double)(ns[1] - ns[0]) * 1e-3 / REPEATS;
        if (round == 0 || us < best) best = us;
    }
    return best;
}

static device_buffer buffer_of(bench *b, uint64_t size, bool random) {
    device_buffer buffer;
    size = (size + 255) / 256 * 256;
    if (device_buffer_make(b->d, size, "bench", &buffer, &b->error)) say(b, "buffer");
    unsigned char *data = random ? noise(size) : NULL;
    if (data && device_write(b->d, buffer, 0, data, (size_t)size, &b->error)) say(b, "write");
    free(data);
    return buffer;
}

static void run_form(bench *b, const job *s, const tiled_choice *c, const char *line,
                     const bound *buffers) {
    const tiled_shape shape = {.type = s->type, .rows = s->m, .k = s->k, .n_x = s->n};
    base_arena arena;
    graph_pack_layout layout;
    lower_request request = {0};
    dispatch list[3];
    uint32_t n = 0;
    char how[64];
    base_arena_init(&arena, &b->heap);
    if (!graph_pack_layout_of(s->type, s->m, s->k, &layout)) exit(1);
    const named params[] = {{"n_x", s->n},
                            {"x_count", s->n},
                            {"k", s->k},
                            {"x_stride", s->k},
                            {"steps", c->kind == TILED_PLAIN ? 0 : tiled_steps(&shape, c)},
                            {"PART_rows", s->m},
                            {"PART_stored", s->m},
                            {"PART_k", s->k},
                            {"PART_out_stride", s->m},
                            {"PART_out_part", s->n * s->m},
                            {"PART_plane0", (uint32_t)(layout.offset[0] / 4)},
                            {"PART_plane1", (uint32_t)(layout.offset[1] / 4)},
                            {"PART_plane2", (uint32_t)(layout.offset[2] / 4)},
                            {"PART_plane3", (uint32_t)(layout.offset[3] / 4)},
                            {"n", s->n},
                            {"rows", s->m},
                            {"n_part", c->parts},
                            {"part", s->n * s->m},
                            {"out_stride", s->m},
                            {NULL, 0}};
    /* buffers: weights, x, quantised, parts, out */
    if (c->kind == TILED_INT8) {
        list[n] = dispatch_make(b, &arena, &(kernels_request){.file = "quantise"}, params,
                                (bound[]){buffers[1], buffers[2], {NULL, {0}}});
        list[n++].groups[0] = (s->n * (s->k / 32) + 127) / 128;
    }
    tiled_request(&request, &shape, c);
    list[n] = dispatch_make(b, &arena, &request.kernel, params,
                            (bound[]){buffers[0],
                                      {"x", buffers[c->kind == TILED_INT8 ? 2 : 1].buffer},
                                      {"PART_out", buffers[c->parts > 1 ? 3 : 4].buffer},
                                      {NULL, {0}}});
    list[n].groups[0] = (s->n + c->tile_n - 1) / c->tile_n;
    list[n].groups[1] = (s->m + tiled_cols(&shape, c) - 1) / tiled_cols(&shape, c);
    list[n++].groups[2] = c->parts;
    if (c->parts > 1) {
        list[n] = dispatch_make(b, &arena, &(kernels_request){.file = "matmul_merge"}, params,
                                (bound[]){buffers[3], buffers[4], {NULL, {0}}});
        list[n++].groups[0] = (s->n * s->m + 255) / 256;
    }
    snprintf(how, sizeof how, "%s %ux%ux%u /%u parts %u%s",
             c->kind == TILED_INT8  ? "int8"
             : c->kind == TILED_F32 ? "f32"
                                    : "plain",
             c->tile_n, c->kind == TILED_PLAIN ? c->wg * c->each_m : c->tile_m, c->tile_k, c->wg,
             c->parts, c->now ? " now" : "");
    line_end(line, s, how, dispatch_time(b, list, n));
    while (n > 0) dispatch_drop(b, &list[--n]);
    base_arena_fini(&arena);
}

static void run_forms(bench *b, const job *s) {
    char line[128];
    uint32_t n;
    const tiled_choice *forms = tiled_forms(&n);
    const tiled_shape shape = {.type = s->type, .rows = s->m, .k = s->k, .n_x = s->n};
    const bool software = device_caps_of(b->d)->kind == DEVICE_SOFTWARE;
    line_begin(s, line, sizeof line);
    if (s->n < 16 || s->n_expert || (b->word && !strstr(line, b->word))) return;
    graph_pack_layout layout;
    if (!graph_pack_layout_of(s->type, s->m, s->k, &layout)) exit(1);
    const uint64_t out = (uint64_t)s->n * s->m * 4;
    const bound buffers[] = {
        {"weights", buffer_of(b, layout.bytes, true)},
        {"x", buffer_of(b, (uint64_t)s->n * s->k * 4, true)},
        {"quantised", buffer_of(b, (uint64_t)s->n * s->k / 32 * 40 + 80, false)},
        {"parts", buffer_of(b, out * 4, false)},
        {"out", buffer_of(b, out, false)}};
    for (uint32_t i = 0; i < n; i++)
        for (int now = 0; now < 2; now++)
            for (uint32_t parts = 1; parts <= 4; parts *= 2) {
                tiled_choice c = forms[i];
                c.parts = parts;
                c.now = now;
                if (!tiled_fits(device_caps_of(b->d), &shape, &c)) continue;
                if (c.kind == TILED_PLAIN ? parts > 1 || now || !software
                                          : parts > 1 && (now || s->k / parts < 512))
                    continue;
                run_form(b, s, &c, line, buffers);
            }
    for (int i = 0; i < 5; i++) device_buffer_drop(b->d, buffers[i].buffer);
}

int main(int argc, char **argv) {
    bench b = {0};
    bool forms = false;
    const char *choice = NULL;
    base_heap_init(&b.heap, NULL);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--checked")) b.checked = true;
        else if (!strcmp(argv[i], "forms")) forms = true;
        else if (!strcmp(argv[i], "ops")) forms = false;
        else if (i == 1) choice = argv[i];
        else b.word = argv[i];
    }
    if (device_open(&b.heap, NULL, choice, &b.d, &b.error)) say(&b, "device");
    const device_caps *caps = device_caps_of(b.d);
    printf("%s, %s%s\n", caps->name, caps->driver, b.checked ? ", checked" : "");
    if (!caps->timestamps) printf("this device has no timestamps: nothing to measure with\n");
    for (int i = 0; i < N_JOB && caps->timestamps; i++) {
        if (caps->kind == DEVICE_SOFTWARE &&
            (uint64_t)jobs[i].n * jobs[i].k * jobs[i].m > 200000000u)
            continue;
        if (forms) run_forms(&b, &jobs[i]);
        else
            for (int exact = 0; exact < 2; exact++) run_op(&b, &jobs[i], exact);
    }
    device_close(b.d);
    return 0;
}
