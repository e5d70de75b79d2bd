/* pass.c - the order of passes, and the small ones. */
#include "graph/pass.h"

static bool is_effect(const graph *g, const graph_node *node) {
    for (uint32_t i = 0; i < node->n_out; i++) {
        const graph_tensor *t = &g->tensors.data[graph_base_of(g, node->out[i])];
        if (t->role == ROLE_OUTPUT || t->role == ROLE_STORED) return true;
    }
    return false;
}

void graph_pass_dead(graph *g) {
    for (size_t i = g->nodes.count; i-- > 0;) {
        graph_node *node = &g->nodes.data[i];
        if (node->dead || is_effect(g, node)) continue;
        bool used = false;
        for (size_t k = i + 1; k < g->nodes.count && !used; k++) {
            const graph_node *later = &g->nodes.data[k];
            for (uint32_t a = 0; !later->dead && a < later->n_in; a++)
                for (uint32_t b = 0; b < node->n_out; b++)
                    used |= later->in[a] && graph_base_of(g, later->in[a]) == graph_base_of(g, node->out[b]);
        }
        node->dead = !used;
    }
}

lower_settings lower_settings_of(const graph_exec_options *options) {
    return (lower_settings){options->exact, options->forms, options->n_form};
}

beryl_status graph_pass_all(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error) {
    graph_pass_dead(g);
    return graph_pass_fuse(g, store, options, error);
}
