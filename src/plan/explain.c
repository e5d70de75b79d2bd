/* explain.c - a graph and its plan as text, for people: what the passes left, what became of it,
 * and each kernel from its origin to what the device's compiler is given. */
#include "plan/exec.h"
#include "tile/fused.h"

#include <string.h>

enum { STEPS_SHOWN = 12 };

/* ---- graph ----------------------------------------------------------------------------------- */

static const char *fused_name(uint32_t kind) {
    switch ((fused_kind)kind) {
    case FUSED_MATVEC: return "matvec";
    case FUSED_ATTENTION: return "attention";
    case FUSED_ROUTER: return "router";
    case FUSED_EXPERTS: return "experts";
    case FUSED_UPDATE: return "update";
    case FUSED_CHAIN: break;
    }
    return "chain";
}

bool graph_explain_nodes(const graph *g, const uint32_t *only, base_text *out) {
    bool any = !only;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->dead || (only && *only != i)) continue;
        any = true;
        base_text_print(out, "%4u ", i);
        graph_print_node(g, node, out);
        if (node->op != OP_FUSED) continue;
        base_text_print(out, "       %s of:\n", fused_name(node->attr.fused.kind));
        for (uint32_t k = 0; k < node->attr.fused.count; k++) {
            base_text_add(out, "       | ", 9);
            graph_print_node(g, &g->inner.data[node->attr.fused.first + k], out);
        }
    }
    return any;
}

/* ---- plan ------------------------------------------------------------------------------------ */

bool graph_exec_explain_plan(const graph_exec *e, const uint32_t *only, base_text *out) {
    graph_exec_info info;
    if (only) return graph_exec_print_step(e, *only, out);
    for (uint32_t i = 0; graph_exec_print_step(e, i, out); i++) {}
    graph_exec_describe(e, &info);
    base_text_print(out, "\n%u dispatch%s, %u program%s, %llu bytes of weights and states read\n",
                    info.dispatches, info.dispatches == 1 ? "" : "es", info.programs,
                    info.programs == 1 ? "" : "s", (unsigned long long)info.bytes);
    base_text_print(out, "storeN: a buffer of weights or states; in0: the run's inputs; aN: "
                         "intermediates of colour N; r read, w written\n");
    base_text_print(out, "intermediates: %llu bytes;", (unsigned long long)info.arena_bytes);
    for (size_t i = 0; i < sizeof info.arenas / sizeof *info.arenas; i++)
        if (info.arenas[i])
            base_text_print(out, " a%zu %llu", i, (unsigned long long)info.arenas[i]);
    base_text_add(out, "\n", 1);
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static bool is_first(const graph_exec *e, uint32_t step, device_program program) {
    lower_texts t;
    for (uint32_t i = 0; i < step && graph_exec_texts_at(e, i, &t); i++)
        if (t.program.id == program.id) return false;
    return true;
}

/* "kernel of steps 3, 10, 17 and 32 more: fused matvec blk.0.attn_q.weight" */
static void head(const graph_exec *e, uint32_t step, const lower_texts *t, bool all,
                 base_text *out) {
    lower_texts other;
    graph_exec_step at;
    uint32_t n = 0;
    base_text_add(out, "---- steps", 10);
    for (uint32_t i = step; graph_exec_texts_at(e, i, &other) && (all || i == step); i++) {
        if (other.program.id != t->program.id || n++ >= STEPS_SHOWN) continue;
        base_text_print(out, "%s%u", n > 1 ? ", " : " ", i);
    }
    if (n > STEPS_SHOWN) base_text_print(out, " and %u more", n - STEPS_SHOWN);
    if (graph_exec_step_at(e, step, &at)) base_text_print(out, ": %s", at.label);
    base_text_add(out, "\n", 1);
}

static void text_put(base_text *out, const char *text) {
    const size_t n = strlen(text);
    base_text_add(out, text, n);
    if (n && text[n - 1] != '\n') base_text_add(out, "\n", 1);
}

bool graph_exec_explain_kernels(const graph_exec *e, bool code, const uint32_t *only,
                                base_text *out) {
    lower_texts t;
    bool any = false;
    for (uint32_t i = 0; graph_exec_texts_at(e, i, &t); i++) {
        if (only ? i != *only : !is_first(e, i, t.program)) continue;
        if (any) base_text_add(out, "\n", 1);
        any = true;
        head(e, i, &t, !only, out);
        if (code) {
            base_text_print(out, "%s:\n", device_language_name(t.language));
            text_put(out, t.code);
        } else {
            base_text_print(out, "before the passes:\n");
            text_put(out, t.before);
            base_text_print(out, "after the passes:\n");
            text_put(out, t.after ? t.after : "");
        }
    }
    return any;
}
