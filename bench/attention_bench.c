/* attention_bench.c - how long a decode step's attention takes: forms of attention_lanes,
 * attention_far and attention_merge, many dispatches one after another between two timestamps,
 * each on caches of its own, so that these come from memory as they do in a model.
 *
 *   attention_bench [DEVICE] [WORD]      WORD: only shapes whose name contains it
 *
 * Queries, keys and values before their norms and rotations; F16 caches; one row. Behind a time:
 * how much of the speed with which the device reads memory that is. What a form with a merge
 * gives is compared with the first such form of its shape and depth. */
#include "kernels/kernels.h"

#include "base/thread.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A GPU that was idle, while a program was compiled, takes a while to clock up again. */
#define WARM_SECONDS 0.05
enum {
    DISPATCHES = 128,
    ROUNDS = 8,
    SETS_MAX = 128,
    PROGRAMS_MAX = 256,
    OUT_MAX = 16 << 10,
    PART_BYTES = 64 << 10
};

typedef struct shape {
    const char *name;
    uint32_t n_head, n_kv, d, window;
} shape;

static const shape shapes[] = {
    {"E2B-sliding", 8, 1, 256, 512},   {"E2B-global", 8, 1, 512, 0},  {"E4B-global", 8, 2, 512, 0},
    {"26B-sliding", 16, 8, 256, 1024}, {"26B-global", 16, 2, 512, 0}, {"31B-global", 32, 4, 512, 0},
};

/* ahead 0: attention_lanes. tile, ahead: of attention_far; held: of attention_lanes. */
typedef struct form {
    uint32_t heads, threads, lanes, keys, piece, n_split, ahead, tile;
    bool reads, held;
} form;

typedef struct bench {
    base_heap heap;
    base_arena arena;
    device *d;
    beryl_error error;
    device_buffer small, k, v, partial, stats, out;
    uint32_t dispatches;  /* between two timestamps */
    uint64_t cache_bytes; /* of k and of v */
    double bandwidth;     /* bytes a microsecond */
    float first[OUT_MAX]; /* what the first form gave */
    bool has_first;
    struct {
        uint64_t hash;
        device_program program;
    } programs[PROGRAMS_MAX];
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

typedef struct step {
    device_program program;
    device_bindings bindings[SETS_MAX];
    uint32_t groups[3], params[DEVICE_PARAM_ALIGN / 4];
} step;

typedef struct range {
    const char *name;
    device_binding at;
    uint64_t stride;
} range;

static bool program_of(bench *b, const char *name, const kernels_text *k, device_program *out) {
    for (uint32_t i = 0; i < b->n_program; i++)
        if (b->programs[i].hash == k->hash) return *out = b->programs[i].program, true;
    device_program_desc desc = {.language = DEVICE_WGSL,
                                .source = k->text,
                                .source_size = k->size,
                                .label = name,
                                .n_binding = k->n_binding,
                                .param_bytes = k->n_param * 4,
                                .uses_f16 = k->uses_f16,
                                .uses_subgroups = k->uses_subgroups,
                                .trusted = true};
    for (uint32_t i = 0; i < k->n_binding; i++) desc.access[i] = k->bindings[i].access;
    memcpy(desc.workgroup, k->workgroup, sizeof desc.workgroup);
    if (b->n_program == PROGRAMS_MAX || device_program_make(b->d, &desc, out, &b->error))
        return false;
    beryl_status status;
    while ((status = device_program_status(b->d, *out, &b->error)) == BERYL_PENDING)
        base_sleep(1e-3);
    if (status != BERYL_OK) return false;
    b->programs[b->n_program].hash = k->hash;
    b->programs[b->n_program++].program = *out;
    return true;
}

/* Compiles and binds, n_set times with ranges moved by their strides. */
static bool step_make(bench *b, const kernels_request *request, const range *ranges,
                      uint32_t n_range, uint32_t n_set, kernels_text *k, step *s) {
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
        if (device_bindings_make(b->d, s->program, bound, k->n_binding, &s->bindings[set],
                                 &b->error))
            say(b, "bindings");
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
    for (uint32_t i = 0; i < b->dispatches; i++)
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
    const double first = base_time();
    for (int round = 0; round < ROUNDS || base_time() - first < WARM_SECONDS; round++) {
        device_ticket ticket;
        uint64_t ns[2] = {0};
        uint32_t n_stamp = 2;
        const device_submit_desc desc = {list, n, params, n_step * DEVICE_PARAM_ALIGN};
        if (device_submit(b->d, &desc, &ticket, &b->error) || device_wait(b->d, ticket, &b->error))
            say(b, "run");
        if (device_stamps(b->d, ticket, ns, &n_stamp, &b->error)) say(b, "stamps");
        device_fetch_drop(b->d, ticket);
        const double us = (double)(ns[1] - ns[0]) * 1e-3 / b->dispatches;
        if (us < best) best = us;
    }
    return best;
}

static void params_of(const kernels_text *k, uint32_t *p, const shape *s, const form *f,
                      uint32_t n_row) {
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

static uint32_t at_most(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Workgroup memory, as the kernels declare it. */
static uint32_t bytes_of(const shape *s, const form *f, uint32_t join) {
    const uint32_t d4 = s->d / 4, groups = f->threads / f->lanes,
                   parts = f->ahead ? f->threads / d4 : groups;
    const uint32_t lines = 16 * (f->heads + 2) * d4 + (f->ahead ? 8 * f->heads * f->tile : 0),
                   joined = 16 * parts * join * d4;
    return (lines > joined ? lines : joined) +
           (f->ahead ? 12 * f->heads + 16 * groups : groups * f->heads * 8);
}

/* Lanes that make a line of attention_far. */
static uint32_t line_lanes_of(const device_caps *caps, const shape *s, const form *f) {
    uint32_t lanes = 32;
    while (lanes > 4 && (lanes > caps->subgroup_size || s->d / 4 % (2 * lanes) ||
                         f->threads / lanes < f->heads + 2))
        lanes /= 2;
    return lanes;
}

static bool form_fits(const bench *b, const shape *s, const form *f) {
    const device_caps *caps = device_caps_of(b->d);
    const uint32_t d4 = s->d / 4;
    if (f->lanes > caps->subgroup_size || f->threads > caps->workgroup_invocations ||
        s->n_head / s->n_kv % f->heads)
        return false;
    if (bytes_of(s, f, 1) > caps->workgroup_bytes) return false;
    if (!f->ahead) return d4 % (2 * f->lanes) == 0 && f->threads / f->lanes >= f->heads + 2;
    return f->heads == 4 && d4 % (f->lanes * f->ahead) == 0 && d4 <= f->threads;
}

/* What the last run left in `out`, against what the first did. */
static double difference(bench *b, uint32_t n) {
    const device_command list[] = {{.kind = DEVICE_FETCH, .fetch = {b->out, 0, n * 4}}};
    device_ticket ticket;
    const void *data;
    size_t size;
    if (device_submit(b->d, &(device_submit_desc){list, 1, NULL, 0}, &ticket, &b->error) ||
        device_wait(b->d, ticket, &b->error))
        say(b, "fetch");
    if (device_fetched(b->d, ticket, 0, &data, &size, &b->error)) say(b, "fetch");
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, (const char *)data + i * 4, 4);
        if (!b->has_first) b->first[i] = value;
        const double off = value > b->first[i] ? value - b->first[i] : b->first[i] - value;
        if (!(off <= most)) most = off; /* not numbers show */
    }
    b->has_first = true;
    device_fetch_drop(b->d, ticket);
    return most;
}

static void merge(bench *b, const shape *s, const form *f, const range *ranges, uint32_t n_range,
                  uint32_t n_set, step *steps) {
    char d4[16], each[16];
    const uint32_t wanted = (f->n_split + 15) / 16;
    snprintf(d4, sizeof d4, "%uu", s->d / 4);
    snprintf(each, sizeof each, "%uu", wanted < 4 ? 4 : at_most(wanted, 12));
    kernels_request m = {
        .file = "attention_merge",
        .options = {{"D4", d4}, {"COLUMNS", "16u"}, {"PARTS", "16u"}, {"EACH", each}}};
    kernels_text k;
    if (!step_make(b, &m, ranges, n_range, n_set, &k, &steps[1])) return;
    params_of(&k, steps[1].params, s, f, 0);
    memcpy(steps[1].groups, (uint32_t[]){s->n_head * (s->d / 4 / 16), 1, 1},
           sizeof steps[1].groups);
    printf(", with merge %7.2f us", time_of(b, steps, 2, n_set));
    printf(", differs by %.1e", difference(b, s->n_head * s->d));
    step_drop(b, &steps[1], n_set);
}

static void run(bench *b, const shape *s, uint32_t depth, form f, bool merged) {
    if (!form_fits(b, s, &f)) return;
    char text[12][16];
    const uint32_t n_row = s->window && s->window < depth + 64 ? s->window : depth + 64;
    const uint64_t set_bytes = ((uint64_t)n_row * s->n_kv * s->d * 2 + 255) / 256 * 256;
    uint32_t n_set = at_most((uint32_t)(b->cache_bytes / set_bytes), SETS_MAX), join = f.heads;
    while (join > 1 && bytes_of(s, &f, join) > device_caps_of(b->d)->workgroup_bytes) join /= 2;
    while (!f.ahead && join > 1 && f.threads / f.lanes * join * s->d * 4 > 32 << 10) join /= 2;
    kernels_request r = {.file = f.ahead ? "attention_far" : "attention_lanes"};
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"THREADS", f.threads},
                   {"LANES", f.lanes},
                   {"D4", s->d / 4},
                   {"KEYS", f.keys},
                   {"JOIN", join},
                   {"PIECE", f.piece},
                   {f.ahead ? "AHEAD" : "HEADS", f.ahead ? f.ahead : f.heads},
                   {"TILE", f.tile},
                   {"LINE_LANES", line_lanes_of(device_caps_of(b->d), s, &f)}};
    uint32_t n = 0;
    for (; n < (f.ahead ? 9 : 7); n++) {
        snprintf(text[n], sizeof text[n], "%uu", numbers[n].value);
        r.options[n] = (kernels_option){numbers[n].name, text[n]};
    }
    if (!f.ahead) r.options[n++] = (kernels_option){"HELD", f.held ? "true" : "false"};
    r.options[n++] = (kernels_option){"SPLIT", f.n_split > 1 ? "true" : "false"};
    r.parts[0] = (kernels_part){"start", "attention_lanes_heads", NULL};
    r.parts[1] = (kernels_part){"cache",
                                f.ahead   ? f.reads ? "cache_read_f16" : "cache_own_f16"
                                : f.reads ? "cache_eight_f16"
                                          : "cache_eight_own_f16",
                                NULL};
    if (!f.reads) {
        r.parts[2] = (kernels_part){"half_bits", "half_bits", NULL};
    } else {
        r.parts[2] = (kernels_part){"fresh", "attention_lanes_fresh_none", NULL};
        r.options[n++] = (kernels_option){"FRESH", "false"};
    }
    const uint64_t part = PART_BYTES;
    range ranges[] = {{"q", {b->small, 0, part}, 0},
                      {"key", {b->small, part, part}, 0},
                      {"value", {b->small, 2 * part, part}, 0},
                      {"norms", {b->small, 3 * part, part}, 0},
                      {"angles", {b->small, 4 * part, part}, 0},
                      {"slot", {b->small, 5 * part, 256}, 0},
                      {"pos", {b->small, 6 * part, 256}, 0},
                      {"k_cache", {b->k, 0, set_bytes}, set_bytes},
                      {"v_cache", {b->v, 0, set_bytes}, set_bytes},
                      {"partial", {b->partial, 0, 0}, 0},
                      {"stats", {b->stats, 0, 0}, 0},
                      {"out", {b->partial, 0, 0}, 0}};
    const uint32_t n_range = sizeof ranges / sizeof *ranges;
    device_write(b->d, b->small, 6 * part, &depth, 4, &b->error);
    static step steps[2];
    kernels_text k;
    printf("%-12s depth %5u %s %s heads %u threads %3u lanes %2u keys %u piece %2u splits %3u",
           s->name, depth, f.ahead ? "far  " : "lanes", f.reads ? "read" : "own ", f.heads,
           f.threads, f.lanes, f.keys, f.piece, f.n_split);
    if (f.ahead) printf(" ahead %u tile %3u: ", f.ahead, f.tile);
    else printf(" %-16s: ", f.held ? "held" : "");
    if (!step_make(b, &r, ranges, n_range, n_set, &k, &steps[0])) {
        printf("%s\n", b->error.message);
        return;
    }
    params_of(&k, steps[0].params, s, &f, n_row);
    memcpy(steps[0].groups, (uint32_t[]){f.n_split, s->n_head / f.heads, 1},
           sizeof steps[0].groups);
    const double us = time_of(b, steps, 1, n_set);
    printf("%7.2f us %3.0f %%", us,
           (double)at_most(depth + 1, n_row) * s->n_kv * s->d * 4 / us / b->bandwidth * 100);
    ranges[n_range - 1].at.buffer = b->out;
    if (merged) merge(b, s, &f, ranges, n_range, n_set, steps);
    printf("\n");
    fflush(stdout);
    step_drop(b, &steps[0], n_set);
}

/* Near: few pieces, few heads a workgroup; the next product merges them. */
static void sweep_near(bench *b, const shape *s, uint32_t depth, bool tiny) {
    const uint32_t lanes = tiny ? 8 : 32;
    for (uint32_t heads = 1; heads <= 2; heads *= 2)
        for (uint32_t threads = tiny ? 64 : 128; threads <= (tiny ? 64u : 256u); threads *= 2)
            for (int held = 0; held < 2; held++)
                for (uint32_t n_split = 4; n_split <= 8; n_split *= 2)
                    run(b, s, depth,
                        (form){.heads = heads,
                               .threads = threads,
                               .lanes = lanes,
                               .keys = 4,
                               .piece = 32,
                               .n_split = n_split,
                               .held = held},
                        threads == 256 && n_split == 8);
    run(b, s, depth,
        (form){.heads = 1,
               .threads = tiny ? 64 : 256,
               .lanes = lanes,
               .keys = 4,
               .piece = 32,
               .n_split = 8,
               .reads = true,
               .held = true},
        false);
}

/* Far: attention_lanes first, then attention_far as the lowering takes it, then one thing
 * changed at a time. */
static void sweep_far(bench *b, const shape *s, uint32_t depth, bool tiny) {
    const device_caps *caps = device_caps_of(b->d);
    const uint32_t units = caps->compute_units ? caps->compute_units : 128,
                   group = s->n_head / s->n_kv;
    form lanes = {.heads = 2,
                  .threads = tiny ? 32 : 128,
                  .lanes = tiny ? 8 : 32,
                  .keys = 4,
                  .piece = 32,
                  .n_split = at_most(128, 4 * units / s->n_head)};
    run(b, s, depth, lanes, true);
    lanes.reads = true;
    run(b, s, depth, lanes, false);
    lanes.reads = false;
    lanes.heads = 4;
    lanes.threads *= 2;
    if (!tiny) run(b, s, depth, lanes, true); /* software takes minutes to compile it */
    if (group % 4) return;
    const uint32_t splits = 4 * units / s->n_head;
    form far = {.heads = 4,
                .threads = tiny ? 256 : 512,
                .lanes = tiny ? 8 : 16,
                .keys = 4,
                .piece = 32,
                .n_split = at_most(192, splits),
                .ahead = 2,
                .tile = tiny ? 128 : 256};
    run(b, s, depth, far, true);
    form other = far;
    other.reads = true;
    run(b, s, depth, other, false);
    /* 0: as before; splits: halves */
    static const struct {
        uint32_t threads, lanes, keys, ahead, tile, piece, splits;
    } changes[] = {{.lanes = 8},
                   {.lanes = 32},
                   {.ahead = 1},
                   {.ahead = 4},
                   {.tile = 128},
                   {.keys = 8},
                   {.splits = 1},
                   {.splits = 4},
                   {.piece = 16},
                   {.piece = 64},
                   {.piece = 16, .lanes = 32},
                   {.threads = 384},
                   {.threads = 384, .lanes = 8},
                   {.threads = 256, .lanes = 8},
                   {.threads = 256},
                   {.threads = 256, .lanes = 8, .splits = 4},
                   {.threads = 256, .splits = 4},
                   {.threads = 256, .lanes = 8, .ahead = 4},
                   {.threads = 256, .lanes = 8, .ahead = 1, .splits = 4},
                   {.threads = 256, .lanes = 8, .keys = 8},
                   {.threads = 1024, .lanes = 32, .ahead = 1}};
    for (uint32_t i = 0; i < (tiny ? 3u : sizeof changes / sizeof *changes); i++) {
        other = far;
        if (changes[i].threads) other.threads = changes[i].threads;
        if (changes[i].lanes) other.lanes = changes[i].lanes;
        if (changes[i].keys) other.keys = changes[i].keys;
        if (changes[i].ahead) other.ahead = changes[i].ahead;
        if (changes[i].tile) other.tile = changes[i].tile;
        if (changes[i].piece) other.piece = changes[i].piece;
        if (changes[i].splits) other.n_split = splits * changes[i].splits / 2;
        if (changes[i].piece && depth > 4096) continue;
        run(b, s, depth, other, true);
    }
}

/* Random numbers, the same a MB, through `partial`: keys and values below 1 in size, as halves. */
static void fill(bench *b, device_buffer to, uint64_t bytes, bool halves) {
    enum { CHUNK = 1 << 20, COPIES = 512 };
    static uint32_t words[CHUNK / 4];
    static device_command list[COPIES];
    uint32_t state = 1;
    for (uint32_t i = 0; i < CHUNK / 4; i++) {
        state = state * 1664525u + 1013904223u;
        const float value = (float)(state >> 8) * 0x1p-23f - 1;
        if (halves) words[i] = (state >> 16 & 0xbbff) | (state << 3 & 0xbbff0000u);
        else memcpy(&words[i], &value, 4);
    }
    if (device_write(b->d, b->partial, 0, words, CHUNK, &b->error)) say(b, "write");
    uint32_t n = 0;
    for (uint64_t at = 0; at < bytes && n < COPIES; at += CHUNK)
        list[n++] = (device_command){
            .kind = DEVICE_COPY,
            .copy = {b->partial, to, 0, at, bytes - at < CHUNK ? bytes - at : CHUNK}};
    device_ticket ticket;
    if (device_submit(b->d, &(device_submit_desc){list, n, NULL, 0}, &ticket, &b->error) ||
        device_wait(b->d, ticket, &b->error))
        say(b, "copy");
}

static void measure(bench *b) {
    kernels_text k;
    static step s;
    const uint32_t tiles = (uint32_t)(b->cache_bytes >> 14);
    const range ranges[] = {{"data", {b->k, 0, b->cache_bytes}, 0}, {"out", {b->partial, 0, 0}, 0}};
    if (!step_make(b, &(kernels_request){.file = "read_bandwidth"}, ranges, 2, 1, &k, &s))
        say(b, "read_bandwidth");
    number(&k, s.params, "tiles", tiles);
    number(&k, s.params, "rounds", 1);
    memcpy(s.groups, (uint32_t[]){at_most(tiles, 2048), 1, 1}, sizeof s.groups);
    b->bandwidth = (double)b->cache_bytes / time_of(b, &s, 1, 1);
    step_drop(b, &s, 1);
    printf("reads %.1f GB/s\n", b->bandwidth * 1e-3);
}

int main(int argc, char **argv) {
    static const uint32_t depths[] = {100, 512, 4096, 16384, 65536};
    static bench b;
    base_heap_init(&b.heap, NULL);
    base_arena_init(&b.arena, &b.heap);
    const char *word = argc > 2 ? argv[2] : "";
    if (device_open(&b.heap, NULL, argc > 1 ? argv[1] : "webgpu", &b.d, &b.error))
        say(&b, "device");
    const device_caps *caps = device_caps_of(b.d);
    const bool tiny = caps->kind == DEVICE_SOFTWARE;
    printf("%s, subgroups of %u, %u bytes of workgroup memory, %u units\n", caps->name,
           caps->subgroup_size, caps->workgroup_bytes, caps->compute_units);
    if (!caps->timestamps || caps->subgroup_size < 8)
        return puts("needs timestamps and subgroups"), 0;
    b.dispatches = tiny ? 2 : DISPATCHES;
    b.cache_bytes = tiny ? 32 << 20 : 512 << 20;
    b.small = buffer_of(&b, 8 * PART_BYTES);
    b.k = buffer_of(&b, b.cache_bytes);
    b.v = buffer_of(&b, b.cache_bytes);
    b.partial = buffer_of(&b, 64 << 20);
    b.stats = buffer_of(&b, 256 << 10);
    b.out = buffer_of(&b, OUT_MAX * 4);
    fill(&b, b.small, 5 * PART_BYTES, false);
    fill(&b, b.k, b.cache_bytes, true);
    fill(&b, b.v, b.cache_bytes, true);
    measure(&b);
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t j = 0; j < sizeof depths / sizeof *depths; j++) {
            const shape *s = &shapes[i];
            if (!strstr(s->name, word) || (s->window && depths[j] > 4 * s->window)) continue;
            if ((uint64_t)(depths[j] + 64) * s->n_kv * s->d * 2 > b.cache_bytes && !s->window)
                continue;
            b.has_first = false;
            if (s->window || depths[j] < 512) sweep_near(&b, s, depths[j], tiny);
            else sweep_far(&b, s, depths[j], tiny);
        }
    device_close(b.d);
    return 0;
}
