/* replay.c - runs a plan with new numbers, and tells what it is. A run patches parameters and
 * grids from its extents and allocates nothing. Steps without anything to do are left out: no
 * device is asked for no workgroups, and no kernel divides by a size of 0. */
#include "base/build.h"
#include "base/error.h"
#include "base/thread.h"
#include "plan/plan.h"

#include <string.h>

enum { ONE_WRITE_BYTES = 64 << 10 };

void *graph_exec_input(graph_exec *e, graph_value input) {
    if (e->reference) return graph_reference_input(e->reference, input);
    if (!e->memory.inputs || !input || input >= e->g->tensors.count ||
        e->memory.items.data[input].kind != ITEM_INPUT)
        return NULL;
    return e->memory.inputs + e->memory.items.data[input].offset;
}

bool graph_exec_place(const graph_exec *e, graph_value value, device_buffer *buffer,
                      uint64_t *offset) {
    if (e->reference || !value || value >= e->g->tensors.count) return false;
    const plan_item *it = &e->memory.items.data[value];
    if (!it->used || (it->kind != ITEM_INPUT && (it->kind != ITEM_ARENA || !it->keep)))
        return false;
    *buffer = plan_memory_buffer(&e->memory, it);
    *offset = it->offset;
    return true;
}

void graph_exec_leave(graph_exec *e, graph_value input) {
    e->memory.items.data[input].left = e->memory.some_left = true;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static uint64_t tensor_bytes(const graph_tensor *t, const uint32_t *values) {
    uint64_t rows = t->rank ? graph_dim_value(t->dim[0], values) : 1;
    uint64_t each = t->rank ? t->stride[0] : 1;
    return rows * each * base_type_block_bytes(t->type);
}

static beryl_status write_inputs(graph_exec *e, const uint32_t *values, beryl_error *error) {
    if (!e->memory.inputs) return BERYL_OK;
    if (e->memory.inputs_bytes <= ONE_WRITE_BYTES && (BUILD_IS_SMALL || !e->memory.some_left))
        return device_write(e->device, e->memory.input_buffer, 0, e->memory.inputs,
                            e->memory.inputs_bytes, error);
    beryl_status status = BERYL_OK;
    for (graph_value v = 1; status == BERYL_OK && v < e->g->tensors.count; v++) {
        const plan_item *it = &e->memory.items.data[v];
        if (it->kind != ITEM_INPUT || !it->used || (!BUILD_IS_SMALL && it->left)) continue;
        uint64_t bytes = align_up(tensor_bytes(graph_tensor_at(e->g, v), values), 4);
        if (bytes)
            status = device_write(e->device, e->memory.input_buffer, it->offset,
                                  e->memory.inputs + it->offset, (size_t)bytes, error);
    }
    return status;
}

/* false: more than the device's. None in one dimension: none in all. */
static bool grid_of(const plan_step *st, const device_caps *caps, const uint32_t *values,
                    uint32_t *groups) {
    uint64_t n[3];
    for (int i = 0; i < 3; i++)
        n[i] = (plan_count_value(st->groups[i], values) + st->per[i] - 1) / st->per[i];
    uint64_t most = caps->groups_max ? caps->groups_max : 65535;
    for (int i = 0; i < 3 && st->shared; i++)
        if (n[i] > most) n[i] = most;
    if (!n[0] || !n[1] || !n[2]) n[0] = n[1] = n[2] = 0;
    if (n[0] > most && n[1] == 1) {
        n[1] = (n[0] + most - 1) / most;
        n[0] = (n[0] + n[1] - 1) / n[1];
    }
    for (int i = 0; i < 3; i++) groups[i] = (uint32_t)n[i];
    return n[0] <= most && n[1] <= most && n[2] <= most;
}

/* About how long a step takes beside the others: what it reads of weights and states, and a
 * little for itself. */
static uint64_t work_of(const graph_exec *e, size_t s) {
    return e->record.steps.data[s].bytes + e->work / (8 * e->record.steps.count) + 1;
}

static beryl_status run_reference(graph_exec *e, const uint32_t *extents, const graph_value *fetch,
                                  uint32_t n_fetch, beryl_error *error) {
    beryl_status status = graph_reference_run(e->reference, extents, error);
    if (status != BERYL_OK) return status;
    e->n_fetch = n_fetch;
    for (uint32_t i = 0; i < n_fetch; i++) e->fetch[i] = fetch[i];
    return BERYL_OK;
}

beryl_status graph_exec_begin(graph_exec *e, const uint32_t *extents, const graph_value *fetch,
                              uint32_t n_fetch, beryl_error *error) {
    if (n_fetch > PLAN_FETCH_MAX)
        return base_fail(error, BERYL_MISUSE, "%u values to read back", n_fetch);
    if (e->reference) return run_reference(e, extents, fetch, n_fetch, error);
    e->commands.count = e->at = e->sent = 0;
    uint32_t values[GRAPH_EXTENT_MAX + 1];
    beryl_status status = graph_extent_values(e->g, extents, values, error);
    if (status == BERYL_OK) status = write_inputs(e, values, error);
    if (status != BERYL_OK) return status;
    const uint32_t empty = graph_extents_empty(e->g, values);
    for (size_t i = 0; i < e->record.patches.count; i++) {
        uint32_t value = (uint32_t)plan_count_value(e->record.patches.data[i].count, values);
        memcpy(e->record.params + e->record.patches.data[i].at, &value, sizeof value);
    }
    const size_t stamped_to = e->stamp_next + PLAN_STAMP_MAX;
    e->stamp_from = e->stamp_next;
    e->stamp_next = stamped_to < e->record.steps.count ? stamped_to : 0;
    for (size_t s = 0; s < e->record.steps.count; s++) {
        plan_step *st = &e->record.steps.data[s];
        if ((e->options.stamped && s >= e->stamp_from && s <= stamped_to) ||
            (e->options.framed && !s))
            e->commands.data[e->commands.count++] = (device_command){.kind = DEVICE_STAMP};
        memset(st->groups_run, 0, sizeof st->groups_run);
        if (st->once && e->kept == e->store->uploads + 1) continue;
        if (!(st->needs & empty) && !grid_of(st, device_caps_of(e->device), values, st->groups_run))
            return base_fail(error, BERYL_UNSUPPORTED, "%s: a grid larger than the device's",
                             st->label);
        if (!st->groups_run[0]) continue;
        device_command *c = &e->commands.data[e->commands.count++];
        *c = (device_command){
            .kind = DEVICE_DISPATCH,
            .dispatch = {st->program, st->made, {0, 0, 0}, (uint32_t)s * DEVICE_PARAM_ALIGN}};
        memcpy(c->dispatch.groups, st->groups_run, sizeof c->dispatch.groups);
    }
    if ((e->options.stamped && stamped_to >= e->record.steps.count) || e->options.framed)
        e->commands.data[e->commands.count++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < n_fetch; i++) {
        const plan_item *it =
            fetch[i] < e->g->tensors.count ? &e->memory.items.data[fetch[i]] : NULL;
        if (!it || !it->used || it->kind != ITEM_ARENA || !it->keep)
            return base_fail(error, BERYL_MISUSE, "a value that is no output is read back");
        const uint64_t bytes = align_up(tensor_bytes(graph_tensor_at(e->g, fetch[i]), values), 4);
        e->commands.data[e->commands.count++] = (device_command){
            .kind = DEVICE_FETCH, /* of no rows: of some bytes, which nobody may read */
            .fetch = {e->memory.arena_buffers[it->colour], it->offset, bytes ? bytes : 4}};
    }
    return BERYL_OK;
}

/* Where the next part ends. A step belongs to the part in which its middle lies: parts of one
 * size are the same steps in every run, so that a device meets the same lists again. */
static size_t part_end(const graph_exec *e, uint32_t parts) {
    uint64_t all = 0, before = 0;
    for (size_t s = 0; s < e->record.steps.count; s++) {
        if (s == e->at) before = all;
        all += work_of(e, s);
    }
    const uint64_t size = all / parts + 1, part = (before + work_of(e, e->at) / 2) / size;
    size_t end = e->at;
    do before += work_of(e, end++);
    while (end < e->record.steps.count && (before + work_of(e, end) / 2) / size == part);
    return end;
}

/* Commands of steps [from, to). */
static size_t commands_of(const graph_exec *e, size_t from, size_t to) {
    size_t n = 0;
    for (size_t s = from; s < to; s++) n += e->record.steps.data[s].groups_run[0] != 0;
    return n;
}

beryl_status graph_exec_continue(graph_exec *e, uint32_t parts, graph_part *part,
                                 device_ticket *ticket, beryl_error *error) {
    if (e->reference) {
        *part = (graph_part){.share = 1, .last = true};
        *ticket = ++e->ticket;
        return BERYL_OK;
    }
    const size_t n_step = e->record.steps.count;
    const bool whole = parts <= 1 || e->options.stamped || e->options.framed;
    size_t end = whole || e->at >= n_step ? n_step : part_end(e, parts), n_command = 0;
    while (end < n_step && !(n_command = commands_of(e, e->at, end))) end++;
    const bool last = end >= n_step;
    if (last) n_command = e->commands.count - e->sent;
    e->encoded = base_time();
    const device_submit_desc desc = {e->commands.data + e->sent, n_command, e->record.params,
                                     n_step * DEVICE_PARAM_ALIGN};
    const beryl_status status = device_submit(e->device, &desc, ticket, error);
    if (status != BERYL_OK) return status;
    uint64_t all = 0, mine = 0;
    for (size_t s = 0; s < n_step; s++) {
        all += work_of(e, s);
        if (s >= e->at && s < end) mine += work_of(e, s);
    }
    *part = (graph_part){.share = all ? (float)((double)mine / (double)all) : 1,
                         .steps = (uint32_t)(end - e->at),
                         .last = last};
    e->at = end;
    e->sent += n_command;
    if (last) e->kept = e->store->uploads + 1;
    return BERYL_OK;
}

beryl_status graph_exec_submit(graph_exec *e, const uint32_t *extents, const graph_value *fetch,
                               uint32_t n_fetch, device_ticket *ticket, beryl_error *error) {
    graph_part whole;
    const beryl_status status = graph_exec_begin(e, extents, fetch, n_fetch, error);
    return status == BERYL_OK ? graph_exec_continue(e, 1, &whole, ticket, error) : status;
}

beryl_status graph_exec_fetched(graph_exec *e, device_ticket ticket, uint32_t n, const void **data,
                                beryl_error *error) {
    size_t size;
    if (e->reference) {
        if (ticket != e->ticket || n >= e->n_fetch)
            return base_fail(error, BERYL_MISUSE, "a result that is gone");
        *data = graph_reference_value(e->reference, e->fetch[n]);
        return BERYL_OK;
    }
    if (e->options.stamped || e->options.framed) {
        uint64_t ns[PLAN_STAMP_MAX + 1];
        uint32_t n_stamp = PLAN_STAMP_MAX + 1;
        const bool known =
            device_stamps(e->device, ticket, ns, &n_stamp, NULL) == BERYL_OK && n_stamp > 1;
        const size_t n_step = e->options.stamped ? e->record.steps.count : 0;
        e->seconds = known ? (double)(ns[n_stamp - 1] - ns[0]) * 1e-9 : 0;
        for (size_t s = 0; known && s + 1 < n_stamp && e->stamp_from + s < n_step; s++)
            e->record.steps.data[e->stamp_from + s].microseconds =
                (double)(ns[s + 1] - ns[s]) * 1e-3;
        if (n_step > PLAN_STAMP_MAX) e->seconds = 0;
        for (size_t s = 0; n_step > PLAN_STAMP_MAX && s < n_step; s++)
            e->seconds += e->record.steps.data[s].microseconds * 1e-6;
    }
    return device_fetched(e->device, ticket, n, data, &size, error);
}

/* ---- facts ----------------------------------------------------------------------------------- */

void graph_exec_describe(const graph_exec *e, graph_exec_info *info) {
    *info = (graph_exec_info){.dispatches = (uint32_t)e->record.steps.count,
                              .programs = (uint32_t)e->store->programs.count,
                              .kept_bytes = e->kept_bytes,
                              .recomputed_bytes = e->recomputed_bytes,
                              .recomputes = e->recomputes};
    for (size_t i = 0; e->reference && i < e->g->nodes.count; i++)
        info->dispatches += !e->g->nodes.data[i].dead;
    for (size_t s = 0; s < e->record.steps.count; s++) info->bytes += e->record.steps.data[s].bytes;
    for (int c = 0; c < PLAN_COLOUR_MAX; c++)
        info->arena_bytes += info->arenas[c] = e->memory.arena_sizes[c];
}

bool graph_exec_node_program(const graph_exec *e, uint32_t node, uint32_t i, device_program *out) {
    for (size_t s = 0; s < e->record.steps.count; s++) {
        if (e->record.steps.data[s].node != node || i-- > 0) continue;
        *out = e->record.steps.data[s].program;
        return true;
    }
    return false;
}

bool graph_exec_step_at(const graph_exec *e, uint32_t i, graph_exec_step *out) {
    if (i >= e->record.steps.count) return false;
    const plan_step *st = &e->record.steps.data[i];
    *out = (graph_exec_step){
        st->label,        st->bytes,
        st->microseconds, {st->groups_run[0], st->groups_run[1], st->groups_run[2]},
        st->product,      st->form};
    return true;
}

double graph_exec_seconds(const graph_exec *e) {
    return e->seconds;
}

double graph_exec_encoded(const graph_exec *e) {
    return e->encoded;
}

bool graph_exec_texts_at(const graph_exec *e, uint32_t i, lower_texts *out) {
    if (i >= e->record.steps.count || !e->options.explained) return false;
    const device_program program = e->record.steps.data[i].program;
    /* the first step of a program has its texts */
    for (i = 0; e->record.steps.data[i].program.id != program.id; i++) {}
    *out = e->record.steps.data[i].texts;
    out->program = program;
    return true;
}

bool graph_exec_print_step(const graph_exec *e, uint32_t i, base_text *out) {
    if (i >= e->record.steps.count) return false;
    const plan_step *st = &e->record.steps.data[i];
    base_text_print(out, "%4u ", i);
    if (e->options.stamped) base_text_print(out, "%8.2f us ", st->microseconds);
    base_text_print(out, "%10llu bytes  %-52s grid", (unsigned long long)st->bytes, st->label);
    for (int d = 0; d < 3; d++) {
        const graph_extent *x = &e->g->extents[st->groups[d].extent]; /* [0]: of no name */
        const bool brackets = x->divisor == 1 && x->sum.n > 1;
        base_text_print(out, " %llu%s%s%s%s/%u", (unsigned long long)st->groups[d].factor,
                        x->name ? "*" : "", brackets ? "(" : "", x->name ? x->name : "",
                        brackets ? ")" : "", st->per[d]);
    }
    for (uint32_t b = 0; b < st->n_binding; b++) {
        const plan_binding *from = &st->bindings[b];
        base_text_print(out, " %s%s", st->names ? st->names[b].name : "", st->names ? "=" : "");
        if (from->item == PLAN_STORED) {
            base_text_print(out, "store%u+%llu", from->buffer, (unsigned long long)from->offset);
        } else {
            const plan_item *it = &e->memory.items.data[from->item];
            base_text_print(out, "%s%u+%llu", it->kind == ITEM_INPUT ? "in" : "a", it->colour,
                            (unsigned long long)it->offset);
        }
        base_text_add(out, st->access[b] == DEVICE_READ ? "r" : "w", 1);
    }
    base_text_add(out, "\n", 1);
    return true;
}

void graph_exec_print(graph_exec *e, base_text *out) {
    for (uint32_t i = 0; graph_exec_print_step(e, i, out); i++) {}
}
