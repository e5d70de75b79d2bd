/* bench.c - speed, in the rows that users of llama-bench know: pp512 reads a prompt of 512 tokens,
 * tg128 generates 128, "@ d4096" after 4,096 tokens of context, "b16" in 16 sessions at once; and
 * "picture 280" encodes a picture of 280 soft tokens, "sound 30 s" a clip.
 *
 * How it is timed: a prompt by the engine's own prefill time; generation by the clock of this
 * program, from the moment when the last session has given its first token until the first session
 * has given its last, so that neither reading prompts nor sessions that run dry count. Nothing is
 * sampled but the likeliest token, and no stop counts. */
#include "cli.h"

#include "base/error.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

enum { REPEAT_MAX = 1000, LIST_MAX = 64, SESSION_MAX = 1024, WARMUP_TOKENS = 8 };

typedef enum output { OUTPUT_MD, OUTPUT_CSV, OUTPUT_JSON, OUTPUT_JSONL } output;

typedef struct sizes {
    uint32_t data[LIST_MAX];
    size_t count;
} sizes;

typedef struct measure {
    uint32_t n_prompt, n_gen, n_depth, n_session; /* one of n_prompt and n_gen is not 0, or */
    uint32_t n_soft, n_second;                    /* one of these: a picture's, a clip's */
    double seconds[REPEAT_MAX],
        speed[REPEAT_MAX]; /* of each repetition; speed in tokens a second */
    size_t n;
    double first_token_s; /* mean, of the first session */
    double dispatches;    /* a step, over the timed steps; 0: not known */
} measure;

typedef struct bench {
    cli *c;
    beryl_engine *engine;
    beryl_session *session[SESSION_MAX];
    size_t n_session;
    beryl_engine_info info;
    beryl_stats stats;
    output form;
    json_out json;
    size_t n_row;
    int32_t *tokens; /* [n_token_max], random but for BOS */
    size_t n_token_max;
    double cold_first_token_s; /* program's start to the very first token */
} bench;

/* ---- running --------------------------------------------------------------------------------- */

typedef struct lane { /* one session's task while several run */
    beryl_task *task;
    double *times; /* [n_max], when each token came; borrowed */
    uint32_t n, n_max;
    bool ended;
} lane;

static void lane_event(bench *b, lane *l, const beryl_event *event) {
    if (event->kind != BERYL_EVENT_TOKEN || event->token < 0) return;
    double now = base_time();
    if (l->n < l->n_max) l->times[l->n++] = now;
    if (b->cold_first_token_s <= 0) b->cold_first_token_s = now - b->c->started;
}

static beryl_generate_options greedy(uint32_t n) {
    return (beryl_generate_options){.size = sizeof(beryl_generate_options),
                                    .greedy = true,
                                    .ignore_eos = true,
                                    .max_tokens = n};
}

/* A session reads the first n_token tokens and gives one. *first: when that came. */
static beryl_status prompt_read(bench *b, size_t index, size_t n_token, double *first,
                                beryl_result *result, beryl_error *error) {
    beryl_generate_options options = greedy(1);
    beryl_event event;
    beryl_task *task = NULL;
    lane l = {.times = first, .n_max = 1};
    beryl_status status =
        beryl_session_generate(b->session[index], b->tokens, n_token, &options, &task, error);
    if (status) return status;
    cli_task_begin(task);
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) lane_event(b, &l, &event);
    cli_task_end();
    const beryl_error *cause = beryl_task_error(task);
    if (status && cause) *error = *cause;
    const beryl_result *got = beryl_task_result(task);
    if (got) *result = *got;
    beryl_task_close(task);
    return status;
}

/* The context of `depth` tokens in a session, computed unless it is there. */
static beryl_status depth_make(bench *b, size_t index, size_t depth, beryl_error *error) {
    const int32_t *held;
    size_t n_held = 0;
    beryl_session_tokens(b->session[index], &held, &n_held);
    if (!depth || n_held >= depth) return beryl_session_rewind(b->session[index], depth, error);
    double first;
    beryl_result result = {0};
    beryl_status status = prompt_read(b, index, depth, &first, &result, error);
    return status ? status : beryl_session_rewind(b->session[index], depth, error);
}

static beryl_status prompt_run(bench *b, measure *m, bool keep, beryl_error *error) {
    double first = 0;
    beryl_result result = {0};
    beryl_status status = depth_make(b, 0, m->n_depth, error);
    double begun = base_time();
    if (!status)
        status = prompt_read(b, 0, (size_t)m->n_depth + m->n_prompt, &first, &result, error);
    if (status || !keep) return status;
    double seconds = result.prefill_s > 0 ? result.prefill_s : first - begun;
    /* Whatever had to be read again counts with its time. */
    uint32_t n_read =
        result.n_prompt > result.n_reused ? result.n_prompt - result.n_reused : m->n_prompt;
    m->seconds[m->n] = seconds;
    m->speed[m->n++] = n_read / seconds;
    m->first_token_s += first - begun;
    return BERYL_OK;
}

/* Steps all lanes in turn until each has ended, sleeping only when none has anything to tell. */
static beryl_status lanes_run(bench *b, lane *lanes, size_t n, beryl_error *error) {
    beryl_event event;
    for (size_t n_left = n; n_left;) {
        bool idle = true;
        lane *waiting = NULL;
        for (size_t i = 0; i < n; i++) {
            lane *l = &lanes[i];
            if (l->ended) continue;
            if (!waiting)
                cli_task_begin(l->task); /* Ctrl-C cancels one, and the others end with it */
            /* One event each: a device that never lets wait would else be told of lane after lane.
             */
            beryl_status status = beryl_task_step(l->task, &event);
            if (status == BERYL_EVENT) {
                idle = false;
                lane_event(b, l, &event);
                continue;
            }
            if (status == BERYL_PENDING) {
                if (!waiting) waiting = l;
                continue;
            }
            if (status) {
                const beryl_error *cause = beryl_task_error(l->task);
                if (cause) *error = *cause;
                return status;
            }
            l->ended = true;
            n_left--;
            idle = false;
        }
        if (idle && waiting && beryl_wait(waiting->task, &event) == BERYL_EVENT)
            lane_event(b, waiting, &event);
    }
    return BERYL_OK;
}

/* Lanes decode in the same steps. The window begins when the last lane has its first token, and
 * takes as many steps as every lane still gives after that. */
static void lanes_judge(measure *m, const lane *lanes, size_t n) {
    double from = 0, to = 0;
    uint32_t n_step = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (!lanes[i].n) return;
        from = lanes[i].times[0] > from ? lanes[i].times[0] : from;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t n_after = 0;
        while (n_after < lanes[i].n && lanes[i].times[lanes[i].n - 1 - n_after] > from) n_after++;
        n_step = n_after < n_step ? n_after : n_step;
    }
    for (size_t i = 0; i < n && n_step; i++) {
        uint32_t at = 0;
        while (lanes[i].times[at] <= from) at++;
        double end = lanes[i].times[at + n_step - 1];
        to = end > to ? end : to;
    }
    if (!(to > from)) return;
    m->seconds[m->n] = to - from;
    m->speed[m->n++] = (double)n_step * (double)n / (to - from);
}

static beryl_status generate_run(bench *b, measure *m, uint32_t n_gen, bool keep,
                                 beryl_error *error) {
    lane lanes[SESSION_MAX];
    uint32_t n_max = n_gen + 1; /* the first token ends the prompt's work */
    beryl_generate_options options = greedy(n_max);
    beryl_status status = BERYL_OK;
    beryl_stats before = {0}, after = {0};
    size_t n = m->n_session, n_open = 0, n_prompt = m->n_depth ? m->n_depth : 1,
           size = n * n_max * sizeof(double);
    double *times = base_heap_take(&b->c->heap, size); /* [n_session, n_max] */
    if (!times) return BERYL_NO_MEMORY;
    for (size_t i = 0; i < n && !status; i++) status = depth_make(b, i, m->n_depth, error);
    beryl_engine_stats(b->engine, &before);
    double begun = base_time();
    while (n_open < n && !status) {
        lane *l = &lanes[n_open];
        *l = (lane){.times = times + n_open * n_max, .n_max = n_max};
        status = beryl_session_generate(b->session[n_open], b->tokens, n_prompt, &options, &l->task,
                                        error);
        if (!status) n_open++;
    }
    if (!status) status = lanes_run(b, lanes, n, error);
    cli_task_end();
    for (size_t i = 0; i < n_open; i++) beryl_task_close(lanes[i].task);
    if (!status && keep) {
        beryl_engine_stats(b->engine, &after);
        if (after.steps > before.steps)
            m->dispatches = (double)(after.dispatches - before.dispatches) /
                            (double)(after.steps - before.steps);
        m->first_token_s += times[0] - begun;
        lanes_judge(m, lanes, n);
    }
    base_heap_give(&b->c->heap, times, size);
    return status;
}

/* Noise, in a form that is as near to a square as so many soft tokens can be, or of so many
 * seconds; from what the model takes of it to its soft tokens. */
static beryl_status media_run(bench *b, measure *m, bool keep, beryl_error *error) {
    enum { UNIT = 48, RATE = 16000 };
    uint32_t down = (uint32_t)sqrt((double)m->n_soft);
    while (down > 1 && m->n_soft % down) down--;
    beryl_media_desc desc = {.size = sizeof desc, .kind = m->n_soft ? BERYL_PICTURE : BERYL_SOUND};
    size_t size;
    if (m->n_soft) {
        desc.height = UNIT * down;
        desc.width = UNIT * (m->n_soft / down);
        desc.budget = m->n_soft;
        desc.resized = true;
        size = (size_t)desc.width * desc.height * 3;
    } else {
        desc.n_sample = (size_t)m->n_second * RATE;
        size = desc.n_sample * sizeof *desc.samples;
    }
    char *content = base_heap_take(&b->c->heap, size);
    if (!content) return base_no_memory(error);
    base_random random = {.state = 1};
    for (size_t i = 0; m->n_soft && i < size; i++) content[i] = (char)base_random_next(&random);
    for (size_t i = 0; i < desc.n_sample; i++)
        ((float *)content)[i] = (float)(base_random_next(&random) & 0xffff) / 65536 - 0.5f;
    if (m->n_soft) desc.rgb = (const uint8_t *)content;
    else desc.samples = (const float *)content;
    beryl_media *media = NULL;
    beryl_task *task = NULL;
    size_t n = 0;
    beryl_status status = beryl_media_open(b->engine, &desc, &media, error);
    const double begun = base_time();
    if (!status) status = beryl_media_encode(media, &task, error);
    if (!status) status = cli_task_run(b->c, task, NULL, NULL);
    const double seconds = base_time() - begun;
    const beryl_error *cause = beryl_task_error(task);
    if (status && cause) *error = *cause;
    beryl_media_soft(media, NULL, &n, NULL);
    if (!status && keep) {
        m->seconds[m->n] = seconds;
        m->speed[m->n++] = (double)n / seconds;
        m->first_token_s += seconds;
    }
    beryl_task_close(task);
    beryl_media_close(media);
    base_heap_give(&b->c->heap, content, size);
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct figures { /* what a row says */
    char test[64], model[96];
    double mean, deviation, mean_s, deviation_s, first_token_s;
    double bytes, dispatches, bandwidth_percent; /* a token; 0: none */
    uint64_t resident_peak;
} figures;

static void spread(const double *values, size_t n, double *mean, double *deviation) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    *mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++) square += (values[i] - *mean) * (values[i] - *mean);
    *deviation = n > 1 ? sqrt(square / (double)(n - 1)) : 0;
}

static uint64_t resident_peak(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
#if defined(__APPLE__)
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

static void test_name(char *to, size_t size, const measure *m) {
    if (m->n_soft) snprintf(to, size, "picture %u", m->n_soft);
    if (m->n_second) snprintf(to, size, "sound %u s", m->n_second);
    if (m->n_soft || m->n_second) return;
    int n = snprintf(to, size, m->n_gen ? "tg%u" : "pp%u", m->n_gen ? m->n_gen : m->n_prompt);
    if (m->n_session > 1) n += snprintf(to + n, size - (size_t)n, " b%u", m->n_session);
    if (m->n_depth) snprintf(to + n, size - (size_t)n, " @ d%u", m->n_depth);
}

static void figures_make(bench *b, const measure *m, figures *f) {
    *f = (figures){.first_token_s = m->n ? m->first_token_s / (double)m->n : 0,
                   .resident_peak = resident_peak()};
    beryl_engine_stats(b->engine, &b->stats);
    test_name(f->test, sizeof f->test, m);
    snprintf(
        f->model, sizeof f->model, "%s %s %s", b->info.architecture ? b->info.architecture : "",
        b->info.size_label ? b->info.size_label : "", b->info.file_type ? b->info.file_type : "");
    spread(m->speed, m->n, &f->mean, &f->deviation);
    spread(m->seconds, m->n, &f->mean_s, &f->deviation_s);
    if (!m->n_gen) return;
    /* The weights are read once a step for all sessions. */
    f->bytes = (double)b->stats.decode_bytes_per_token / m->n_session;
    f->dispatches = (m->n_session == 1 && b->stats.decode_dispatches ? b->stats.decode_dispatches
                                                                     : m->dispatches) /
                    m->n_session;
    if (b->stats.bandwidth > 0)
        f->bandwidth_percent = 100 * f->bytes * f->mean / b->stats.bandwidth;
}

static void row_markdown(bench *b, const figures *f) {
    char size[32], params[32], speed[64], bytes[32] = "", dispatches[32] = "", bandwidth[32] = "",
                                          first[32];
    if (!b->n_row++) {
        printf("| %-24s | %10s | %8s | %-9s | %-18s | %20s | %11s | %10s | %8s | %9s |\n", "model",
               "size", "params", "backend", "test", "t/s", "first token", "bytes/tok", "disp/tok",
               "bandwidth");
        puts("| ------------------------ | ---------: | -------: | --------- | ------------------ "
             "| -------------------: | "
             "----------: | ---------: | -------: | --------: |");
    }
    snprintf(speed, sizeof speed, "%.2f ± %.2f", f->mean, f->deviation);
    snprintf(first, sizeof first, "%.1f ms", f->first_token_s * 1e3);
    if (f->bytes > 0) cli_size_text(bytes, (uint64_t)f->bytes);
    if (f->dispatches > 0) snprintf(dispatches, sizeof dispatches, "%.0f", f->dispatches);
    if (f->bandwidth_percent > 0)
        snprintf(bandwidth, sizeof bandwidth, "%.1f %%", f->bandwidth_percent);
    fputs("| ", stdout);
    term_print(stdout, f->model, strlen(f->model), true);
    printf("%*s | %10s | %8s | %-9s | %-18s | ",
           strlen(f->model) < 24 ? 24 - (int)strlen(f->model) : 0, "",
           cli_size_text(size, b->info.file_size), cli_count_text(params, b->info.parameters),
           b->info.device.backend ? b->info.device.backend : "", f->test);
    int columns = (int)term_columns(speed);
    printf("%*s%s | %11s | %10s | %8s | %9s |\n", columns < 20 ? 20 - columns : 0, "", speed, first,
           bytes, dispatches, bandwidth);
}

static const char *precision_text(beryl_precision precision) {
    return precision == BERYL_PRECISION_EXACT ? "exact" : "fast";
}

static const char *kv_text(beryl_kv kv) {
    switch (kv) {
    case BERYL_KV_DEFAULT: return "default";
    case BERYL_KV_F32: return "f32";
    case BERYL_KV_F16: return "f16";
    case BERYL_KV_Q8: return "q8";
    }
    return "";
}

static void samples_json(json_out *j, const char *key, const double *values, size_t n,
                         double scale) {
    json_open(j, key, '[');
    for (size_t i = 0; i < n; i++) json_number(j, NULL, values[i] * scale);
    json_close(j, ']');
}

static void row_json(bench *b, const measure *m, const figures *f) {
    json_out *j = &b->json;
    const beryl_engine_info *info = &b->info;
    json_open(j, NULL, '{');
    json_text(j, "version", beryl_version());
    json_text(j, "model_filename", info->model_path);
    json_text(j, "model_type", f->model);
    json_integer(j, "model_size", (int64_t)info->file_size);
    json_integer(j, "model_n_params", (int64_t)info->parameters);
    json_text(j, "backends", info->device.backend);
    json_text(j, "gpu_info", info->device.name);
    json_text(j, "driver", info->device.driver);
    json_text(j, "precision", precision_text(info->precision));
    json_text(j, "kv", kv_text(info->kv));
    json_integer(j, "n_ctx", info->context);
    json_text(j, "test", f->test);
    json_integer(j, "n_prompt", m->n_prompt);
    json_integer(j, "n_gen", m->n_gen);
    json_integer(j, "n_depth", m->n_depth);
    json_integer(j, "n_session", m->n_session);
    json_number(j, "avg_ns", f->mean_s * 1e9);
    json_number(j, "stddev_ns", f->deviation_s * 1e9);
    json_number(j, "avg_ts", f->mean);
    json_number(j, "stddev_ts", f->deviation);
    samples_json(j, "samples_ns", m->seconds, m->n, 1e9);
    samples_json(j, "samples_ts", m->speed, m->n, 1);
    json_number(j, "first_token_s", f->first_token_s);
    json_number(j, "bytes_per_token", f->bytes);
    json_number(j, "dispatches_per_token", f->dispatches);
    json_number(j, "bandwidth", b->stats.bandwidth);
    json_number(j, "bandwidth_percent", f->bandwidth_percent);
    json_number(j, "load_s", b->stats.load_s);
    json_number(j, "start_to_first_token_s", b->cold_first_token_s);
    json_integer(j, "device_bytes_peak", (int64_t)b->stats.device_bytes_peak);
    json_integer(j, "host_bytes_peak", (int64_t)b->stats.host_bytes_peak);
    json_integer(j, "resident_bytes_peak", (int64_t)f->resident_peak);
    json_close(j, '}');
}

static void csv_text(const char *text) {
    putchar('"');
    for (; text && *text; text++) {
        if (*text == '"') putchar('"');
        term_print(stdout, text, 1, true);
    }
    putchar('"');
}

static void row_csv(bench *b, const measure *m, const figures *f) {
    const beryl_engine_info *info = &b->info;
    if (!b->n_row++)
        puts("version,model_filename,model_type,model_size,model_n_params,backends,gpu_info,"
             "precision,kv,n_ctx,test,n_prompt,"
             "n_gen,n_depth,n_session,avg_ns,stddev_ns,avg_ts,stddev_ts,first_token_s,bytes_per_"
             "token,"
             "dispatches_per_token,bandwidth,bandwidth_percent,load_s,start_to_first_token_s,"
             "device_bytes_peak,"
             "host_bytes_peak,resident_bytes_peak");
    csv_text(beryl_version());
    putchar(',');
    csv_text(info->model_path);
    putchar(',');
    csv_text(f->model);
    printf(",%llu,%llu,", (unsigned long long)info->file_size,
           (unsigned long long)info->parameters);
    csv_text(info->device.backend);
    putchar(',');
    csv_text(info->device.name);
    printf(",\"%s\",\"%s\",%u,\"%s\",%u,%u,%u,%u,", precision_text(info->precision),
           kv_text(info->kv), info->context, f->test, m->n_prompt, m->n_gen, m->n_depth,
           m->n_session);
    printf("%.0f,%.0f,%.4f,%.4f,%.6f,%.0f,%.1f,%.0f,%.2f,%.4f,%.4f,%llu,%llu,%llu\n",
           f->mean_s * 1e9, f->deviation_s * 1e9, f->mean, f->deviation, f->first_token_s, f->bytes,
           f->dispatches, b->stats.bandwidth, f->bandwidth_percent, b->stats.load_s,
           b->cold_first_token_s, (unsigned long long)b->stats.device_bytes_peak,
           (unsigned long long)b->stats.host_bytes_peak, (unsigned long long)f->resident_peak);
}

static int row_print(bench *b, const measure *m) {
    figures f;
    int code = CLI_OK;
    figures_make(b, m, &f);
    term_clear(&b->c->term);
    switch (b->form) {
    case OUTPUT_MD: row_markdown(b, &f); break;
    case OUTPUT_CSV: row_csv(b, m, &f); break;
    case OUTPUT_JSON: row_json(b, m, &f); break;
    case OUTPUT_JSONL:
        row_json(b, m, &f);
        code = json_print(b->c, &b->json, stdout);
        break;
    }
    fflush(stdout);
    return code;
}

/* What holds for all rows, below the table. */
static void summary_print(bench *b) {
    char size[32];
    const beryl_engine_info *info = &b->info;
    const beryl_stats *s = &b->stats;
    const char *device = info->device.name ? info->device.name : "";
    fputs("\ndevice ", stdout);
    term_print(stdout, device, strlen(device), true);
    if (info->device.driver && *info->device.driver) {
        fputs(" (", stdout);
        term_print(stdout, info->device.driver, strlen(info->device.driver), true);
        putchar(')');
    }
    if (s->bandwidth > 0) printf(", reads %.1f GB/s", s->bandwidth * 1e-9);
    printf("; precision %s, kv %s, context %u\n", precision_text(info->precision),
           kv_text(info->kv), info->context);
    printf("load %.2f s; first token %.2f s after the program's start\n", s->load_s,
           b->cold_first_token_s);
    printf("device memory %s at most;", cli_size_text(size, s->device_bytes_peak));
    printf(" host memory %s at most,", cli_size_text(size, s->host_bytes_peak));
    printf(" %s resident; beryl %s\n", cli_size_text(size, resident_peak()), beryl_version());
}

/* ---- the tests ------------------------------------------------------------------------------- */

static beryl_status once(bench *b, measure *m, uint32_t n_gen, bool keep, beryl_error *error) {
    return m->n_soft || m->n_second ? media_run(b, m, keep, error)
           : m->n_gen               ? generate_run(b, m, n_gen, keep, error)
                                    : prompt_run(b, m, keep, error);
}

static int test_run(bench *b, measure *m) {
    const args *a = &b->c->args;
    beryl_error error = {0};
    beryl_status status = BERYL_OK;
    char name[64], note[96];
    uint32_t n_repeat = args_count(a, FLAG_REPEAT, 5),
             warm = m->n_gen < WARMUP_TOKENS ? m->n_gen : WARMUP_TOKENS;
    test_name(name, sizeof name, m);
    snprintf(note, sizeof note, "%s, warming up", name);
    term_progress(&b->c->term, "measuring", 0, n_repeat, note);
    if (!args_has(a, FLAG_NO_WARMUP)) status = once(b, m, warm, false, &error);
    for (uint32_t i = 0; i < n_repeat && !status; i++) {
        snprintf(note, sizeof note, "%s, run %u of %u", name, i + 1, n_repeat);
        term_progress(&b->c->term, "measuring", i, n_repeat, note);
        status = once(b, m, m->n_gen, true, &error);
    }
    term_clear(&b->c->term);
    if (status == BERYL_CANCELLED) return cli_fail(b->c, "stopped in %s", name);
    if (status) return cli_report(b->c, status, &error);
    if (m->n != n_repeat) return cli_fail(b->c, "%s ended before it gave its tokens", name);
    return row_print(b, m);
}

static int tests_run(bench *b, const sizes *p, const sizes *n, const sizes *d, const sizes *s) {
    int code = CLI_OK;
    for (size_t k = 0; k < d->count && !code; k++) {
        for (size_t i = 0; i < p->count && !code; i++) {
            measure m = {.n_prompt = p->data[i], .n_depth = d->data[k], .n_session = 1};
            if (m.n_prompt) code = test_run(b, &m);
        }
        for (size_t i = 0; i < n->count && !code; i++) {
            for (size_t x = 0; x < s->count && !code; x++) {
                measure m = {.n_gen = n->data[i], .n_depth = d->data[k], .n_session = s->data[x]};
                if (m.n_gen) code = test_run(b, &m);
            }
        }
    }
    for (int sounds = 0; sounds < 2; sounds++) {
        const args_flag flag = sounds ? FLAG_SOUNDS : FLAG_PICTURES;
        const uint32_t *list = b->c->args.list[flag].data;
        for (size_t i = 0; i < b->c->args.list[flag].count && !code; i++) {
            measure m = {.n_session = 1};
            *(sounds ? &m.n_second : &m.n_soft) = list[i];
            code = test_run(b, &m);
        }
    }
    return code;
}

static bool sizes_get(const args *a, args_flag flag, uint32_t otherwise, sizes *out) {
    size_t n = a->list[flag].count;
    *out = (sizes){.data = {otherwise}, .count = 1};
    if (!args_has(a, flag)) return true;
    if (n > LIST_MAX) return false;
    memcpy(out->data, a->list[flag].data, n * sizeof *out->data);
    out->count = n;
    return true;
}

static uint32_t sizes_max(const sizes *s) {
    uint32_t most = 0;
    for (size_t i = 0; i < s->count; i++) most = s->data[i] > most ? s->data[i] : most;
    return most;
}

static int bench_run(bench *b, const sizes *p, const sizes *n, const sizes *d, const sizes *s) {
    cli *c = b->c;
    beryl_error error = {0};
    beryl_status status = beryl_engine_info_get(b->engine, &b->info);
    for (; !status && b->n_session < sizes_max(s); b->n_session++) {
        status = cli_session_open(c, b->engine, &b->session[b->n_session], &error);
        if (status) break;
    }
    if (status) return cli_report(c, status, &error);
    int32_t bos = cli_bos(c, b->engine);
    if (bos < 0) return CLI_FAILED;
    b->tokens = base_heap_take(&c->heap, b->n_token_max * sizeof *b->tokens);
    if (!b->tokens) return cli_no_memory(c);
    /* Ids of the middle of the vocabulary: neither control tokens nor places of pictures. */
    base_random random = {.state = 1};
    uint64_t low = b->info.n_vocab / 8, span = b->info.n_vocab / 2;
    for (size_t i = 0; i < b->n_token_max; i++)
        b->tokens[i] = (int32_t)(low + (span ? base_random_next(&random) % span : 0));
    b->tokens[0] = bos;
    if (b->form == OUTPUT_JSON) json_open(&b->json, NULL, '[');
    int code = tests_run(b, p, n, d, s);
    if (!code && b->form == OUTPUT_JSON) {
        json_close(&b->json, ']');
        code = json_print(c, &b->json, stdout);
    }
    if (!code && b->form == OUTPUT_MD) summary_print(b);
    return code;
}

int bench_main(cli *c) {
    const args *a = &c->args;
    sizes p, n, d, s;
    size_t n_used;
    if (cli_is_onnx(cli_model(c, &n_used))) return cli_onnx_bench(c, cli_model(c, &n_used));
    if (!sizes_get(a, FLAG_N_PROMPT, 512, &p) || !sizes_get(a, FLAG_N_GEN, 128, &n) ||
        !sizes_get(a, FLAG_N_DEPTH, 0, &d) || !sizes_get(a, FLAG_BATCH, 1, &s))
        return cli_usage(c, "-p, -n, -d and -b take up to %d numbers each", LIST_MAX);
    uint32_t n_repeat = args_count(a, FLAG_REPEAT, 5);
    if (!n_repeat || n_repeat > REPEAT_MAX)
        return cli_usage(c, "-r is between 1 and %d", REPEAT_MAX);
    for (size_t i = 0; i < s.count; i++)
        if (!s.data[i] || s.data[i] > SESSION_MAX)
            return cli_usage(c, "-b is between 1 and %d", SESSION_MAX);
    const bool media = args_has(a, FLAG_PICTURES) || args_has(a, FLAG_SOUNDS);
    if (!sizes_max(&p) && !sizes_max(&n) && !media)
        return cli_usage(c, "nothing to measure: -p or -n above 0");
    for (size_t i = 0; i < a->list[FLAG_PICTURES].count; i++)
        if (!a->list[FLAG_PICTURES].data[i] || a->list[FLAG_PICTURES].data[i] > 1120)
            return cli_usage(c, "--pictures are of 1 to 1,120 soft tokens");
    for (size_t i = 0; i < a->list[FLAG_SOUNDS].count; i++)
        if (!a->list[FLAG_SOUNDS].data[i] || a->list[FLAG_SOUNDS].data[i] > 30)
            return cli_usage(c, "--sounds are of 1 to 30 seconds");
    uint64_t longest = sizes_max(&p) > sizes_max(&n) ? sizes_max(&p) : sizes_max(&n);
    uint64_t needed = longest + sizes_max(&d) + 4; /* a first and a last token, and room to spare */
    if (needed > 1u << 24) return cli_usage(c, "that is more than %u tokens of context", 1u << 24);
    bench b = {
        .c = c, .form = (output)a->values[FLAG_OUTPUT].integer, .n_token_max = (size_t)needed};
    if (c->json) b.form = OUTPUT_JSON;
    cli_open open = {.model = cli_model(c, &n_used),
                     .sessions = sizes_max(&s),
                     .context = (uint32_t)needed,
                     .bench = true};
    b.engine = cli_engine_open(c, &open);
    if (!b.engine) return CLI_FAILED;
    json_init(&b.json, &c->heap);
    int code = bench_run(&b, &p, &n, &d, &s);
    json_fini(&b.json);
    for (size_t i = 0; i < b.n_session; i++) beryl_session_close(b.session[i]);
    beryl_engine_close(b.engine);
    base_heap_give(&c->heap, b.tokens, b.tokens ? b.n_token_max * sizeof *b.tokens : 0);
    return code;
}
