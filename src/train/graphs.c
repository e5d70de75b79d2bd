/* graphs.c - the pass and the step of a training (graphs.h). */
#include "train/graphs.h"
#include "base/error.h"

#include <math.h>

static const graph_dim one = {1, 0};

/* The gradient of each matrix becomes larger by what this pass makes of it. */
static bool add_gradients(const train_pass_desc *d, train_pass *pass, graph_value loss) {
    graph *g = pass->text.g;
    const train_adapter *a = d->adapter;
    graph_value *values = base_arena_take(&g->arena, a->n, 2 * sizeof *values),
                *gradients = values + a->n;
    if (!values) return false;
    for (uint32_t i = 0; i < a->n; i++) values[i] = graph_stored(g, d->store, a->matrices[i].value);
    pass->more = graph_input(g, "more", TYPE_BOOL, 1, &one);
    graph_gradient(g, loss, a->n, values, gradients);
    for (uint32_t i = 0; i < a->n; i++) {
        const graph_value sum = graph_stored(g, d->store, a->matrices[i].gradient);
        const graph_value added = graph_add(g, sum, gradients[i]);
        graph_assign(g, sum, graph_where(g, pass->more, added, gradients[i]));
    }
    return true;
}

beryl_status train_pass_build(const train_pass_desc *d, train_pass *pass, beryl_error *error) {
    *pass = (train_pass){0};
    const gemma4_text_options options = {.n_token = d->n_token,
                                         .n_output = d->n_output,
                                         .lora = &d->adapter->graph,
                                         .labels = true,
                                         .media = d->media,
                                         .dropout = d->forward ? 0 : d->dropout,
                                         .halves = d->halves};
    beryl_status status =
        gemma4_text_build(d->model, d->store, d->heap, &options, &pass->text, error);
    if (status != BERYL_OK) return status;
    graph *g = pass->text.g;
    graph_output(g, pass->text.losses, "losses");
    if (d->forward) return graph_status(g, error);
    pass->share = graph_input(g, "share", TYPE_F32, 1, &one);
    const graph_value loss =
        graph_mul(g, graph_reduce(g, OP_SUM, pass->text.losses, 1, 0), pass->share);
    if (!add_gradients(d, pass, loss)) return base_no_memory(error);
    return graph_status(g, error);
}

/* ---- the step -------------------------------------------------------------------------------- */

static graph_value number_at(graph *g, graph_value numbers, uint32_t index) {
    return graph_narrow(g, numbers, 0, index, 1, 1);
}

static void step_matrix(const train_update *u, const graph_store *store, const train_matrix *t,
                        const graph_adam *how, graph_draw draw, float most, graph_value d) {
    graph *g = u->g;
    const graph_value p = graph_stored(g, store, t->value),
                      first = graph_stored(g, store, t->moments[0]),
                      second = t->coded ? 0 : graph_stored(g, store, t->moments[1]);
    graph_value m = first, v = second;
    const graph_value next = t->coded ? graph_adam_coded(g, how, draw, most, p, d, &m)
                                      : graph_adam_step(g, how, p, d, &m, &v);
    graph_assign(g, first, m);
    if (second) graph_assign(g, second, v);
    graph_assign(g, p, next);
}

void train_update_numbers(const train_optimiser *how, uint32_t step, double rate,
                          float numbers[3]) {
    const double t = (double)step + 1;
    numbers[0] = (float)rate;
    numbers[1] = (float)(rate / (1 - pow((double)how->beta1, t)));
    numbers[2] = (float)sqrt(1 - pow((double)how->beta2, t));
}

beryl_status train_update_build(const graph_store *store, base_heap *heap,
                                const train_adapter *adapter, const train_optimiser *how,
                                train_update *update, beryl_error *error) {
    *update = (train_update){.g = graph_open(heap)};
    graph *g = update->g;
    graph_value *d = g ? base_arena_take(&g->arena, adapter->n, sizeof *d) : NULL;
    if (!d) return base_no_memory(error);
    update->numbers = graph_input(g, "numbers", TYPE_F32, 1, &(graph_dim){3, 0});
    for (uint32_t i = 0; i < adapter->n; i++)
        d[i] = graph_stored(g, store, adapter->matrices[i].gradient);
    update->norm = how->clip > 0 ? graph_clip(g, adapter->n, d, how->clip, d)
                                 : graph_sqrt(g, graph_sum_of_squares(g, adapter->n, d));
    graph_output(g, update->norm, "norm");
    const graph_adam adam = {.beta1 = how->beta1,
                             .beta2 = how->beta2,
                             .eps = how->eps,
                             .decay = how->weight_decay,
                             .rate = number_at(g, update->numbers, 0),
                             .over_first = number_at(g, update->numbers, 1),
                             .root = number_at(g, update->numbers, 2)};
    if (adapter->n && adapter->matrices[0].coded)
        update->key = graph_input(g, "key", TYPE_U32, 1, &(graph_dim){2, 0});
    for (uint32_t i = 0; i < adapter->n; i++)
        step_matrix(update, store, &adapter->matrices[i], &adam, (graph_draw){update->key, i},
                    how->clip, d[i]);
    return graph_status(g, error);
}
