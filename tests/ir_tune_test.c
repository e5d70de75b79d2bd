/* ir_tune_test.c - the cost model's order, the search, and the file that remembers. */
#include "rig.h"
#include "base/file.h"
#include "ir/cost.h"
#include "ir/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lab {
    base_heap heap;
    base_arena arena;
    beryl_log log;
    uint32_t warnings, timed, progress;
    rig_failing failing;
    uint32_t best_block;   /* of dimension 1: what the device likes */
    beryl_status answer;   /* of the timer */
    bool fails_for_others; /* the timer refuses every other block */
} lab;

static void lab_warn(void *user, beryl_log_level level, const char *line) {
    (void)line;
    if (level == BERYL_LOG_WARNING) ((lab *)user)->warnings++;
}

static void lab_open(lab *l) {
    *l = (lab){.failing = {UINT64_MAX}, .best_block = 2};
    l->log = (beryl_log){lab_warn, l};
    base_heap_init(&l->heap, &(beryl_allocator){rig_failing_resize, &l->failing});
    base_arena_init(&l->arena, &l->heap);
}

static void lab_close(test *t, lab *l) {
    base_arena_fini(&l->arena);
    CHECK_INT(t, l->heap.bytes, 0);
}

/* y[m, n] = sum of x[m, k] * w[n, k], all sizes constant */
static const ir_kernel *product(lab *l, ir_type type, uint32_t m, uint32_t n, uint32_t k) {
    ir_builder *b = ir_begin(&l->arena, "product", 1, 1, 1);
    ir_memory x = ir_buffer(b, type, IR_READ, "x"), w = ir_buffer(b, type, IR_READ, "w"),
              y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    ir_memory sum = ir_register(b, IR_F32, 1);
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), depth = ir_u32(b, k), columns = ir_u32(b, n);
    ir_id i = ir_loop_marked(b, zero, ir_u32(b, m), one, IR_PARALLEL, 0),
          j = ir_loop_marked(b, zero, columns, one, IR_PARALLEL, 1);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id p = ir_loop_marked(b, zero, depth, one, IR_REDUCE, 2);
    ir_id u = ir_cast(b, IR_F32, ir_load(b, x, ir_add(b, ir_mul(b, i, depth), p), 1));
    ir_id v = ir_cast(b, IR_F32, ir_load(b, w, ir_add(b, ir_mul(b, j, depth), p), 1));
    ir_set(b, sum, ir_fma(b, u, v, ir_get(b, sum)));
    ir_end(b);
    ir_store(b, y, ir_add(b, ir_mul(b, i, columns), j), ir_get(b, sum));
    ir_end(b), ir_end(b);
    const ir_kernel *made = NULL;
    ir_finish(b, &made, NULL);
    return made;
}

static device_caps gpu(void) {
    device_caps caps = {.backend = "dummy",
                        .name = "a GPU",
                        .kind = DEVICE_DISCRETE,
                        .subgroups = true,
                        .subgroup_size = 32};
    caps.workgroup_bytes = 49152, caps.workgroup_invocations = 1024, caps.compute_units = 100;
    return caps;
}

static beryl_status time_it(void *user, const ir_kernel *scheduled, const ir_schedule *schedule,
                            double *seconds, beryl_error *error) {
    lab *l = user;
    (void)scheduled;
    (void)error;
    l->timed++;
    bool liked = schedule->dims[1].block == l->best_block;
    *seconds = liked ? 1 : 2 + l->timed * 1e-3;
    return l->fails_for_others && !liked ? BERYL_DEVICE : l->answer;
}

static void count_progress(void *user, uint32_t done, uint32_t total) {
    lab *l = user;
    if (done <= total) l->progress++;
}

static void check_cost(test *t) {
    lab l;
    lab_open(&l);
    device_caps caps = gpu();
    ir_schedule plain = {0}, lanes = {0}, tiled = {.vector = 4};
    const uint32_t params[1] = {0};
    lanes.dims[0] = (ir_schedule_dim){.group = 2, .lane = 2, .lanes = 16};
    lanes.dims[1] = (ir_schedule_dim){.group = 1, .lane = 1, .lanes = 16};
    tiled.dims[0] = (ir_schedule_dim){.group = 2, .lane = 2, .lanes = 16, .block = 4};
    tiled.dims[1] = (ir_schedule_dim){.group = 1, .lane = 1, .lanes = 16, .block = 4};
    tiled.dims[2] = (ir_schedule_dim){.stage = 16, .unroll = 4};
    const ir_schedule *schedules[] = {&plain, &lanes, &tiled};
    ir_cost costs[3];
    if (test_case(t, "ir-tune/cost-orders-a-product")) {
        const ir_kernel *k = product(&l, IR_F32, 1024, 1024, 1024), *made = NULL;
        for (uint32_t i = 0; i < 3; i++) {
            CHECK_INT(t, ir_optimise(&l.arena, k, schedules[i], &made, NULL), BERYL_OK);
            CHECK_INT(t, ir_cost_of(&l.heap, made, &caps, params, NULL, &costs[i], NULL), BERYL_OK);
        }
        CHECK(t, costs[0].seconds > 20 * costs[1].seconds);
        CHECK(t, costs[1].seconds > 1.5 * costs[2].seconds);
        CHECK(t, costs[2].groups == 256);
        CHECK(t, costs[2].operations >= 1024.0 * 1024 * 1024);
        CHECK(t, costs[1].loaded > costs[2].loaded);
    }
    if (test_case(t, "ir-tune/cost-of-what-does-not-fit")) {
        const ir_kernel *k = product(&l, IR_F32, 64, 64, 64), *made = NULL;
        caps.workgroup_bytes = 1024;
        CHECK_INT(t, ir_optimise(&l.arena, k, &tiled, &made, NULL), BERYL_OK);
        CHECK_INT(t, ir_cost_of(&l.heap, made, &caps, params, NULL, &costs[0], NULL), BERYL_OK);
        CHECK(t, costs[0].seconds == HUGE_VAL);
    }
    lab_close(t, &l);
}

static void check_search(test *t) {
    lab l;
    lab_open(&l);
    device_caps caps = gpu();
    ir_schedule found, again;
    char path[600];
    snprintf(path, sizeof path, "%s/tune.txt", test_scratch(t));
    ir_tuning tuning = {.plain = product(&l, IR_F32, 512, 512, 256),
                        .caps = &caps,
                        .time = time_it,
                        .progress = count_progress,
                        .user = &l,
                        .n_timed = 20,
                        .n_candidate = 40};
    if (test_case(t, "ir-tune/finds-what-the-device-likes")) {
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, found.dims[1].block, 2);
        CHECK_INT(t, l.timed, 20 + 4); /* the rule and what won, twice more */
        CHECK_INT(t, l.progress, 20);
    }
    if (test_case(t, "ir-tune/candidates-that-fail-are-left-out")) {
        l.fails_for_others = true;
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, found.dims[1].block, 2);
        l.best_block = 77; /* all fail: the rule of thumb */
        ir_schedule thumb;
        ir_schedule_default(tuning.plain, &caps, tuning.extents, &thumb);
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, found.dims[1].block, thumb.dims[1].block);
        CHECK_INT(t, found.dims[0].lanes, thumb.dims[0].lanes);
        l.fails_for_others = false, l.best_block = 2;
    }
    if (test_case(t, "ir-tune/cancelled-search-keeps-nothing")) {
        l.answer = BERYL_CANCELLED, l.timed = 0;
        tuning.cache = ir_cache_open(&l.heap, path, &l.log);
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_CANCELLED);
        CHECK_INT(t, l.timed, 1);
        CHECK(t, tuning.cache && !base_file_exists(path));
        ir_cache_close(tuning.cache);
        tuning.cache = NULL;
        l.answer = BERYL_OK;
    }
    if (test_case(t, "ir-tune/model-alone-decides-without-a-timer")) {
        ir_tuning untimed = tuning;
        untimed.time = NULL;
        CHECK_INT(t, ir_tune(&l.arena, &untimed, &found, NULL), BERYL_OK);
        CHECK_INT(t, ir_tune(&l.arena, &untimed, &again, NULL), BERYL_OK);
        CHECK(t, found.dims[0].lanes * found.dims[1].lanes >= 32);
        CHECK_INT(t, found.dims[1].block, again.dims[1].block);
    }
    if (test_case(t, "ir-tune/halves-try-matrix-units")) {
        ir_tuning halves = tuning;
        halves.plain = product(&l, IR_F16, 512, 512, 256);
        halves.fragments = true, halves.time = NULL;
        CHECK_INT(t, ir_tune(&l.arena, &halves, &found, NULL), BERYL_OK);
        CHECK(t, found.fragments);
    }
    lab_close(t, &l);
}

/* As the next process would. */
static void open_again(lab *l, const char *path, ir_tuning *tuning) {
    ir_cache_close(tuning->cache);
    tuning->cache = ir_cache_open(&l->heap, path, &l->log);
}

static void check_cache(test *t) {
    lab l;
    lab_open(&l);
    device_caps caps = gpu(), other = gpu();
    ir_schedule found, again;
    char path[600];
    snprintf(path, sizeof path, "%s/tuned.txt", test_scratch(t));
    ir_tuning tuning = {.plain = product(&l, IR_F32, 512, 512, 256),
                        .caps = &caps,
                        .time = time_it,
                        .user = &l,
                        .cache = ir_cache_open(&l.heap, path, &l.log),
                        .n_timed = 6,
                        .n_candidate = 12,
                        .extents = {512, 512, 256}};
    ir_tuning second = tuning;
    if (test_case(t, "ir-tune/found-once")) {
        CHECK(t, !ir_tuned(&l.heap, &tuning, &found));
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, l.timed, 6 + 4);
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &again, NULL), BERYL_OK);
        CHECK_INT(t, l.timed, 6 + 4);
        CHECK_INT(t, again.dims[1].block, found.dims[1].block);
        CHECK(t, ir_tuned(&l.heap, &tuning, &again));
        second.extents[0] = 700; /* the same class */
        CHECK(t, ir_tuned(&l.heap, &second, &again));
        second.extents[0] = 1500;
        CHECK(t, !ir_tuned(&l.heap, &second, &again));
        snprintf(other.name, sizeof other.name, "another");
        second = tuning;
        second.caps = &other;
        CHECK(t, !ir_tuned(&l.heap, &second, &again));
        CHECK_INT(t, ir_tune(&l.arena, &second, &again, NULL), BERYL_OK); /* both are kept */
        CHECK(t, ir_tuned(&l.heap, &tuning, &again) && ir_tuned(&l.heap, &second, &again));
        open_again(&l, path, &tuning);
        second.cache = tuning.cache;
        CHECK(t, ir_tuned(&l.heap, &tuning, &again) && ir_tuned(&l.heap, &second, &again));
        CHECK_INT(t, l.warnings, 0);
    }
    if (test_case(t, "ir-tune/damaged-cache-is-ignored")) {
        char *text = NULL;
        size_t size;
        uint32_t rejected = 0;
        tuning.n_timed = 1;
        CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, base_file_read(&l.heap, path, 1 << 20, &text, &size, NULL), BERYL_OK);
        for (size_t i = 0; text && i < size; i += 7) { /* any byte */
            char kept = text[i];
            text[i] = (char)((unsigned char)kept ^ (1 + i % 5));
            CHECK_INT(t, base_file_write(path, text, size, NULL), BERYL_OK);
            l.warnings = 0;
            ir_schedule got = {0};
            open_again(&l, path, &tuning);
            if (!ir_tuned(&l.heap, &tuning, &got)) rejected++;
            else CHECK_INT(t, got.dims[1].block, found.dims[1].block); /* it was in another entry */
            CHECK_INT(t, l.warnings, 1);
            text[i] = kept;
        }
        CHECK(t, rejected > 10);
        for (size_t cut = 0; text && cut < size; cut += 31) {
            CHECK_INT(t, base_file_write(path, text, cut, NULL), BERYL_OK);
            open_again(&l, path, &tuning);
            ir_tuned(&l.heap, &tuning, &again);
        }
        if (text) base_heap_give(&l.heap, text, size + 1);
    }
    if (test_case(t, "ir-tune/cache-of-another-version-is-none")) {
        static const struct {
            const char *text;
            int warnings;
        } heads[] = {{"beryl tune 2\nnonsense\n", 0},
                     {"beryl tune 10\n", 0},
                     {"beryl tune \n", 1},
                     {"beryl tune 10", 1},
                     {"beryl tune 2x\n", 1}};
        tuning.n_timed = 1;
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            bool damaged, other_version;
            CHECK_INT(t, base_file_write(path, heads[i].text, strlen(heads[i].text), NULL),
                      BERYL_OK);
            l.warnings = 0, l.timed = 0;
            open_again(&l, path, &tuning);
            CHECK_INT(t, ir_cache_count(tuning.cache, &damaged, &other_version), 0);
            CHECK(t, damaged == (heads[i].warnings > 0) && other_version == !damaged);
            CHECK_INT(t, ir_tune(&l.arena, &tuning, &again, NULL), BERYL_OK);
            CHECK_INT(t, l.timed, 1);
            CHECK_INT(t, l.warnings, heads[i].warnings);
            open_again(&l, path, &tuning); /* replaced */
            CHECK(t, ir_tuned(&l.heap, &tuning, &again));
            CHECK_INT(t, l.warnings, heads[i].warnings);
        }
    }
    if (test_case(t, "ir-tune/unwritable-cache-is-a-warning")) {
        snprintf(path, sizeof path, "%s/no/such/folder/tuned.txt", test_scratch(t));
        l.warnings = 0, tuning.n_timed = 1, tuning.again = true;
        open_again(&l, path, &tuning);
        for (int i = 0; i < 2; i++) /* and one is enough */
            CHECK_INT(t, ir_tune(&l.arena, &tuning, &found, NULL), BERYL_OK);
        CHECK_INT(t, l.warnings, 1);
    }
    if (test_case(t, "ir-tune/allocation-fails")) {
        bool done = false;
        ir_tuning small = tuning;
        small.n_timed = 1, small.again = true;
        snprintf(path, sizeof path, "%s/room.txt", test_scratch(t));
        for (uint64_t left = 0; left < 100000 && !done && !test_failed(t);
             left += left < 40 ? 1 : 1 + left / 7) {
            lab own;
            lab_open(&own);
            small.plain = product(&own, IR_F32, 64, 64, 64);
            small.user = &own;
            own.failing.left = left;
            small.cache = ir_cache_open(&own.heap, path, &own.log);
            beryl_status status =
                small.cache ? ir_tune(&own.arena, &small, &found, NULL) : BERYL_NO_MEMORY;
            CHECK(t, status == BERYL_OK || status == BERYL_NO_MEMORY);
            done = !status && !own.warnings; /* and what was found is kept */
            own.failing.left = UINT64_MAX;
            ir_cache_close(small.cache);
            lab_close(t, &own);
        }
        CHECK(t, done);
    }
    ir_cache_close(tuning.cache);
    lab_close(t, &l);
}

/* Numbers of a lowering: lanes and rows. The model says few lanes, the device likes many. */
static beryl_status guess_numbers(void *user, const uint32_t *numbers, double *seconds,
                                  beryl_error *error) {
    (void)user;
    (void)error;
    *seconds = numbers[0] == 512 ? HUGE_VAL : numbers[0] + numbers[1]; /* 512: cannot be built */
    return BERYL_OK;
}

static beryl_status time_numbers(void *user, const uint32_t *numbers, double *seconds,
                                 beryl_error *error) {
    lab *l = user;
    (void)error;
    l->timed++;
    if (numbers[0] == 512) l->fails_for_others = true;
    *seconds = numbers[0] == 128 && numbers[1] == l->best_block ? 1 : 2;
    return l->answer;
}

static void check_numbers(test *t) {
    lab l;
    lab_open(&l);
    char path[600];
    uint32_t found[2] = {0}, again[2] = {0};
    snprintf(path, sizeof path, "%s/numbers.txt", test_scratch(t));
    ir_choosing c = {.key = 7,
                     .n = 2,
                     .rule = {128, 2},
                     .knobs = {{0, 5, {32, 64, 128, 256, 512}}, {1, 3, {1, 2, 4}}},
                     .n_timed = 4,
                     .estimate = guess_numbers,
                     .time = time_numbers,
                     .user = &l};
    if (test_case(t, "ir-tune/numbers-by-model-then-by-device")) {
        c.n_timed = 9, l.best_block = 1;
        CHECK_INT(t, ir_tune_numbers(&l.heap, &c, found, NULL), BERYL_OK);
        CHECK(t, found[0] == 128 && found[1] == 1 && !l.fails_for_others);
        CHECK_INT(t, l.timed, 9 + 4);
        c.n_timed = 4, l.timed = 0; /* 128 lanes are not among the first 4, but for the rule's */
        CHECK_INT(t, ir_tune_numbers(&l.heap, &c, found, NULL), BERYL_OK);
        CHECK(t, found[0] == 128 && found[1] == 2);
        CHECK_INT(t, l.timed, 4);
        l.answer = BERYL_DEVICE; /* none of them runs */
        CHECK_INT(t, ir_tune_numbers(&l.heap, &c, found, NULL), BERYL_OK);
        CHECK(t, found[0] == 128 && found[1] == 2);
        l.answer = BERYL_OK;
    }
    if (test_case(t, "ir-tune/numbers-kept-and-none-that-are-not-allowed")) {
        c.cache = ir_cache_open(&l.heap, path, &l.log);
        CHECK(t, !ir_tuned_numbers(&c, again));
        CHECK_INT(t, ir_tune_numbers(&l.heap, &c, found, NULL), BERYL_OK);
        l.timed = 0;
        ir_cache_close(c.cache);
        c.cache = ir_cache_open(&l.heap, path, &l.log);
        CHECK_INT(t, ir_tune_numbers(&l.heap, &c, again, NULL), BERYL_OK);
        CHECK(t, !memcmp(found, again, sizeof found) && !l.timed && !l.warnings);
        c.knobs[0].n = 2; /* 128 is none of them any more */
        for (int i = 0; i < 2; i++) CHECK(t, !ir_tuned_numbers(&c, again));
        c.n = 1;
        CHECK(t, !ir_tuned_numbers(&c, again));
        CHECK_INT(t, l.warnings, 1);
        ir_cache_close(c.cache);
    }
    lab_close(t, &l);
}

void test_ir_tune(test *t) {
    check_cost(t);
    check_search(t);
    check_cache(t);
    check_numbers(t);
}
