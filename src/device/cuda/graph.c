/* graph.c - runs of dispatches that come again are launched as one graph of the driver.
 *
 * The shape of a run is the programs in it. When a shape comes by for the third time, its graph is
 * made: a chain of kernel nodes, so that order is what the list says. From then on each node whose
 * groups, buffers or parameters differ from what it was last told is told anew, which costs the
 * host a fraction of a launch and mostly is the few of them that carry a position. A few shapes are
 * kept, the one unused for longest goes first. Anything that fails here ends in plain launches, for
 * good where the driver is at fault.
 */
#include "device/cuda/cuda.h"
#include "base/error.h"

#include <string.h>

/* STEPS_MAX: more, of a training, take longer as a graph than launched one by one. */
enum { OFTEN = 3, NODE_BYTES = 128, STEPS_MAX = 1 << 12 };

static void forget(cuda *d, cuda_replay *r) {
    if (r->exec) d->f.exec_drop(r->exec);
    if (r->graph) d->f.graph_drop(r->graph);
    base_heap_give(d->head.heap, r->steps, r->n_step * sizeof *r->steps);
    *r = (cuda_replay){0};
}

void cuda_graphs_forget(cuda *d, const cuda_program *program) {
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        cuda_replay *r = &d->replays[i];
        bool has = !program;
        for (uint32_t k = 0; k < r->n_step && !has; k++) has = r->steps[k].program == program;
        if (!has) continue;
        forget(d, r);
    }
}

static uint64_t shape_of(const device_command *commands, size_t n) {
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) {
        const uint32_t *groups = commands[i].dispatch.groups;
        uint32_t words[2] = {commands[i].dispatch.program.id, groups[0] && groups[1] && groups[2]};
        hash = base_hash(words, sizeof words, hash);
    }
    return hash ? hash : 1;
}

/* The place of this shape, or the one to give up for it. */
static cuda_replay *place_of(cuda *d, uint64_t shape) {
    cuda_replay *oldest = &d->replays[0];
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        cuda_replay *r = &d->replays[i];
        if (r->shape == shape) return r;
        if (r->used < oldest->used) oldest = r;
    }
    forget(d, oldest);
    oldest->shape = shape;
    return oldest;
}

typedef struct dispatch {
    const cuda_program *program;
    cuda_bindings *bindings;
    const uint32_t *groups;
    const void *params;
} dispatch;

static dispatch dispatch_of(const cuda *d, const device_command *c, const void *params) {
    return (dispatch){device_pool_at(&d->head.programs, c->dispatch.program.id),
                      device_pool_at(&d->head.bindings, c->dispatch.bindings.id),
                      c->dispatch.groups, (const char *)params + c->dispatch.param_offset};
}

/* The step as it is to be, and the interface's struct for it. False: as it was. */
static bool tell(cuda *d, cuda_step *step, const dispatch *now, void **arguments,
                 unsigned char *node) {
    const device_program_item *p = &now->program->head;
    bool same = step->program == now->program &&
                !memcmp(step->groups, now->groups, sizeof step->groups) &&
                !memcmp(step->at, now->bindings->at, p->n_binding * sizeof *step->at) &&
                (!p->param_bytes || !memcmp(step->params, now->params, p->param_bytes));
    if (same) return false;
    step->program = now->program;
    memcpy(step->groups, now->groups, sizeof step->groups);
    memcpy(step->at, now->bindings->at, p->n_binding * sizeof *step->at);
    if (p->param_bytes) memcpy(step->params, now->params, p->param_bytes);
    for (uint32_t i = 0; i < p->n_binding; i++) arguments[i] = &step->at[i];
    arguments[p->n_binding] = p->param_bytes ? step->params : NULL;
    cuda_launch launch = {.function = now->program->function,
                          .bytes = now->program->launch_bytes,
                          .arguments = arguments};
    for (int i = 0; i < 3; i++) launch.groups[i] = now->groups[i], launch.size[i] = p->workgroup[i];
    d->flavour->node(&launch, node);
    return true;
}

static bool is_empty(const device_command *c) {
    const uint32_t *groups = c->dispatch.groups;
    return !groups[0] || !groups[1] || !groups[2];
}

/* The next node may be launched while the one before runs: the driver's struct says from a port of
 * its own (1) and a type of its own (1). */
static int add_early(cuda *d, cuda_graph graph, cuda_node before, cuda_node node) {
    const unsigned char edge[8] = {1, 0, 1};
    return d->f.graph_edge(graph, &before, &node, edge, 1);
}

static int make_chain(cuda *d, cuda_replay *r, const device_command *commands, size_t n,
                      const void *params) {
    cuda_graph graph = NULL;
    cuda_node before = NULL;
    int code = d->f.graph_make(&graph, 0);
    if (code) return code;
    for (size_t i = 0, k = 0; i < n && !code; i++) {
        if (is_empty(&commands[i])) continue;
        cuda_step *step = &r->steps[k++];
        void *arguments[DEVICE_BINDING_MAX + 1];
        unsigned char node[NODE_BYTES] = {0};
        dispatch now = dispatch_of(d, &commands[i], params);
        step->program = NULL;
        tell(d, step, &now, arguments, node);
        const bool early = before && d->early && now.program->waits, after = before && !early;
        code = d->f.graph_add(&step->node, graph, after ? &before : NULL, after, node);
        if (!code && early) code = add_early(d, graph, before, step->node);
        before = step->node;
    }
    if (!code) code = d->f.exec_make(&r->exec, graph, 0);
    if (code) {
        r->exec = NULL;
        d->f.graph_drop(graph);
        return code;
    }
    r->graph = graph; /* as long as exec: its nodes are told by their names in the graph */
    d->head.stats.objects++;
    return 0;
}

static int make(cuda *d, cuda_replay *r, const device_command *commands, size_t n,
                const void *params) {
    int code = make_chain(d, r, commands, n, params);
    if (!code || !d->early) return code;
    d->early = false; /* a driver that knows the function, and has no such edges */
    return make_chain(d, r, commands, n, params);
}

static int update(cuda *d, cuda_replay *r, const device_command *commands, size_t n,
                  const void *params) {
    int code = 0;
    for (size_t i = 0, k = 0; i < n && !code; i++) {
        if (is_empty(&commands[i])) continue;
        cuda_step *step = &r->steps[k++];
        void *arguments[DEVICE_BINDING_MAX + 1];
        unsigned char node[NODE_BYTES] = {0};
        dispatch now = dispatch_of(d, &commands[i], params);
        if (tell(d, step, &now, arguments, node)) code = d->f.exec_set(r->exec, step->node, node);
    }
    return code;
}

bool cuda_graph_run(cuda *d, const device_command *commands, size_t n, const void *params,
                    int *code) {
    *code = 0;
    if (d->no_graphs || n < CUDA_GRAPH_MIN || n > STEPS_MAX) return false;
    cuda_replay *r = place_of(d, shape_of(commands, n));
    r->used = ++d->n_run;
    if (++r->seen < OFTEN) return false;
    bool made = false;
    if (!r->exec) {
        uint32_t n_step = 0;
        for (size_t i = 0; i < n; i++) n_step += !is_empty(&commands[i]);
        if (!n_step) return true;
        if (!r->steps) r->steps = base_heap_take(d->head.heap, n_step * sizeof *r->steps);
        if (!r->steps) {
            r->seen = 0; /* try later */
            return false;
        }
        r->n_step = n_step;
        *code = make(d, r, commands, n, params);
        made = !*code;
    }
    if (!*code && !made) *code = update(d, r, commands, n, params);
    if (!*code) *code = d->f.exec_launch(r->exec, d->stream);
    if (!*code) return true;
    beryl_error why = {0};
    if (cuda_check(d, *code, "graph", &why) == BERYL_DEVICE_LOST) return true;
    base_log(d->head.log, BERYL_LOG_WARNING, "%s: going without graphs", why.message);
    d->no_graphs = true;
    cuda_graphs_forget(d, NULL);
    *code = 0;
    return false;
}
