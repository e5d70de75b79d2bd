/* trace_events.c - see engine/trace_events.h. */
#include "engine/trace_events.h"
#include "base/error.h"
#include "base/json.h"

#include <string.h>

/* With three places, whatever the locale's point is. */
static void thousandths(base_text *text, double x) {
    const uint64_t n = x > 0 ? (uint64_t)(1e3 * x + 0.5) : 0;
    base_text_print(text, "%llu.%03u", (unsigned long long)(n / 1000), (unsigned)(n % 1000));
}

void trace_event(trace_events *t, const char *name, const char *kind, trace_track where,
                 double from, double to) {
    base_text_print(&t->text, "%s\n{\"name\":", t->comma ? "," : "");
    base_json_write_string(&t->text, name, strlen(name));
    base_text_print(&t->text, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":", kind,
                    where);
    thousandths(&t->text, 1e6 * (from - t->began));
    base_text_print(&t->text, ",\"dur\":");
    thousandths(&t->text, 1e6 * (to - from));
    t->comma = true;
}

void trace_event_end(trace_events *t) {
    base_text_add(&t->text, "}", 1);
}

static void named(trace_events *t, const char *what, int tid, const char *name) {
    base_text_print(&t->text,
                    "%s\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":",
                    t->comma ? "," : "", what, tid);
    base_json_write_string(&t->text, name, strlen(name));
    base_text_add(&t->text, "}}", 2);
    t->comma = true;
}

static void pair(trace_events *t, const char *key, const char *value) {
    base_text_print(&t->text, ",\"%s\":", key);
    base_json_write_string(&t->text, value, strlen(value));
}

void trace_head(trace_events *t, const beryl_engine *e, const char *plan, uint32_t n,
                uint32_t depth) {
    const device_caps *caps = device_caps_of(e->device);
    base_text_print(&t->text,
                    "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"version\":\"beryl " BERYL_VERSION
                    "\",\"plan\":\"%s\",\"tokens\":%u,\"depth\":%u",
                    plan, n, depth);
    pair(t, "model", e->found.name ? e->found.name : "");
    pair(t, "precision", e->options.precision == BERYL_PRECISION_EXACT ? "exact" : "fast");
    pair(t, "backend", caps->backend);
    pair(t, "device", caps->name);
    pair(t, "driver", caps->driver);
    pair(t, "device_clock",
         caps->timestamps ? "timestamps of the device" : "none: the device has no timestamps");
    base_text_print(&t->text, "},\"traceEvents\":[");
    named(t, "process_name", 0, "beryl");
    named(t, "thread_name", TRACE_HOST, "host");
    named(t, "thread_name", TRACE_DEVICE, caps->name);
}

double trace_dispatches(trace_events *t, const graph_exec *exec, double from) {
    graph_exec_step step;
    for (uint32_t i = 0; graph_exec_step_at(exec, i, &step); i++) {
        const double seconds = 1e-6 * step.microseconds;
        trace_event(t, step.label, "dispatch", TRACE_DEVICE, from, from + seconds);
        base_text_print(&t->text, ",\"args\":{\"step\":%u,\"grid\":[%u,%u,%u],\"bytes\":%llu", i,
                        step.groups[0], step.groups[1], step.groups[2],
                        (unsigned long long)step.bytes);
        if (step.bytes && seconds > 0) {
            base_text_print(&t->text, ",\"GB/s\":");
            thousandths(&t->text, 1e-9 * (double)step.bytes / seconds);
        }
        base_text_add(&t->text, "}", 1);
        trace_event_end(t);
        from += seconds;
    }
    return from;
}

beryl_status trace_write(trace_events *t, void (*write)(void *user, const char *text, size_t size),
                         void *user, beryl_error *error) {
    base_text_print(&t->text, "\n]}\n");
    if (t->text.failed) return base_no_memory(error);
    write(user, t->text.data, t->text.size);
    return BERYL_OK;
}
