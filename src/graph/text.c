/* text.c - graphs to text and back. Refuses what the builder refuses, with the byte where the
 * line begins; numbers do not overflow, and what a stored tensor would take is counted before
 * the store hears of it. The idea: a line is a call of the builder, so whatever text says has
 * passed the shape rules that models pass. */
#include "graph/text.h"
#include "base/error.h"
#include "graph/extent.h"
#include "ir/ir.h"

#include <math.h>
#include <string.h>

enum { ID_MAX = 1 << 20, NESTED_MAX = 100 };

/* ---- printing -------------------------------------------------------------------------------- */

static void print_dims(const graph *g, const graph_tensor *t, base_text *out) {
    base_text_add(out, " [", 2);
    for (uint32_t i = 0; i < t->rank; i++) {
        if (i) base_text_add(out, " ", 1);
        if (t->dim[i].extent) graph_extent_print(g, t->dim[i].extent, out);
        else base_text_print(out, "%u", t->dim[i].size);
    }
    base_text_add(out, "]", 1);
}

static void print_name(const char *name, base_text *out) {
    base_text_add(out, " \"", 2);
    for (const char *c = name; *c; c++) {
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            base_text_print(out, "\\%02x", (unsigned)*c);
        else base_text_add(out, c, 1);
    }
    base_text_add(out, "\"\n", 2);
}

static void print_number(double value, base_text *out) {
    base_text_add(out, " ", 1);
    ir_print_float(out, value);
}

static void print_node(const graph_node *node, base_text *out) {
    for (uint32_t i = 0; i < node->n_out; i++) base_text_print(out, "%%%u ", node->out[i]);
    base_text_print(out, "= %s", graph_op_name(node->op));
    for (uint32_t i = 0; i < node->n_in; i++) base_text_print(out, " %%%u", node->in[i]);
    const char *attributes = base_ops[node->op].attributes;
    for (uint32_t i = 0; attributes[i]; i++) {
        if (attributes[i] == 'F') print_number((double)node->attr.at[i].f, out);
        else if (attributes[i] == 'I') base_text_print(out, " %d", (int)node->attr.at[i].i);
        else base_text_print(out, " %u", node->attr.at[i].u);
    }
    if (node->op == OP_ATTENTION && node->attr.attention.apart)
        base_text_print(out, " apart %u", node->attr.attention.most);
    base_text_add(out, "\n", 1);
}

static void print_axes(const graph_tensor *t, base_text *out) {
    for (uint32_t i = 0; i < t->rank; i++)
        base_text_print(out, "%s%u", i ? " " : " [", t->told[i / 8] >> 4 * (i % 8) & 15);
    base_text_print(out, t->rank ? "]" : " []");
}

static void print_view(const graph *g, graph_value v, base_text *out) {
    const graph_tensor *t = graph_tensor_at(g, v);
    const base_view_info *info = &base_views[t->view];
    base_text_print(out, "%%%u = %s %%%u", v, info->name, t->base);
    for (uint32_t i = 0; info->takes[i]; i++) {
        if (info->takes[i] == 'D') print_dims(g, t, out);
        else if (info->takes[i] == 'A') print_axes(t, out);
        else if (info->takes[i] == 'U' || t->told[i] != 1) base_text_print(out, " %u", t->told[i]);
    }
    base_text_add(out, "\n", 1);
}

static const graph_node *maker(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    if (t->node == UINT32_MAX) return NULL;
    const graph_node *node = &g->nodes.data[t->node];
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->out[i] == v) return node;
    return NULL;
}

beryl_status graph_text_print(const graph *g, const graph_store *store, base_text *out,
                              beryl_error *error) {
    for (uint32_t i = 1; i <= g->n_extent; i++) {
        if (g->extents[i].divisor) continue;
        base_text_add(out, "extent ", 7);
        graph_extent_print(g, i, out);
        base_text_print(out, " %u\n", g->extents[i].bound);
    }
    for (graph_value v = 1; v < g->tensors.count; v++) {
        const graph_tensor *t = graph_tensor_at(g, v);
        const graph_node *node = maker(g, v);
        if (node && node->op == OP_FUSED)
            return base_fail(error, BERYL_UNSUPPORTED, "a graph whose nodes are joined, as text");
        if (node) {
            if (node->out[0] == v) print_node(node, out);
        } else if (t->base) {
            print_view(g, v, out);
        } else if (t->role == ROLE_INPUT || t->role == ROLE_STORED) {
            const bool state = t->role == ROLE_STORED && store->tensors.data[t->stored].is_state;
            base_text_print(out, "%%%u = %s %s", v,
                            t->role == ROLE_INPUT ? "input"
                            : state               ? "state"
                                                  : "weight",
                            base_type_name(t->type));
            print_dims(g, t, out);
            print_name(t->name, out);
        } else {
            return base_fail(error, BERYL_UNSUPPORTED, "a graph with tensors of passes, as text");
        }
    }
    for (graph_value v = 1; v < g->tensors.count; v++) {
        if (graph_tensor_at(g, v)->role != ROLE_OUTPUT) continue;
        base_text_print(out, "output %%%u", v);
        print_name(graph_tensor_at(g, v)->name, out);
    }
    return out->failed ? base_no_memory(error) : BERYL_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct parser {
    const char *text;
    size_t size, at, line_at;
    graph *g;
    graph_store *store;
    uint64_t file_bytes, stored_bytes;
    base_vec(graph_value) ids; /* what each id of the text is in the graph, 0: nothing */
    beryl_error *error;
    beryl_status status; /* OK: good so far */
} parser;

static void bad(parser *p, const char *what) {
    if (p->status == BERYL_OK)
        p->status = base_fail_at(p->error, BERYL_BAD_INPUT, p->line_at, "graph text, byte %zu: %s",
                                 p->line_at, what);
}

static void no_memory(parser *p) {
    if (p->status == BERYL_OK) p->status = base_no_memory(p->error);
}

static bool line_ends(parser *p) {
    while (p->at < p->size &&
           (p->text[p->at] == ' ' || p->text[p->at] == '\t' || p->text[p->at] == '\r'))
        p->at++;
    return p->status != BERYL_OK || p->at == p->size || p->text[p->at] == '\n' ||
           p->text[p->at] == ';';
}

static bool is_apart(char c) {
    return c == '[' || c == ']' || c == '=' || c == '"' || c == ';' || c == ' ' || c == '\t' ||
           c == '\r' || c == '\n';
}

/* The next word of the line: brackets and the sign of equality are words of their own. Empty at
 * its end. */
static base_view word(parser *p) {
    if (line_ends(p)) return (base_view){"", 0};
    const size_t from = p->at++;
    if (!is_apart(p->text[from]))
        while (p->at < p->size && !is_apart(p->text[p->at])) p->at++;
    return (base_view){p->text + from, p->at - from};
}

static base_view peek(parser *p) {
    const size_t before = p->at;
    const base_view w = word(p);
    p->at = before;
    return w;
}

static bool is(base_view w, const char *text) {
    return base_view_equal(w, base_view_of(text));
}

static void need(parser *p, const char *text) {
    if (!is(word(p), text)) bad(p, "another word was expected");
}

static uint32_t number_of(parser *p, base_view w) {
    uint64_t n = 0;
    bool good = w.size > 0;
    for (size_t i = 0; good && i < w.size; i++) {
        good = w.data[i] >= '0' && w.data[i] <= '9';
        n = n * 10 + (uint64_t)(w.data[i] - '0');
        good = good && n <= UINT32_MAX;
    }
    if (!good) bad(p, "a whole number was expected, below 2^32");
    return good ? (uint32_t)n : 0;
}

static uint32_t number(parser *p) {
    return number_of(p, word(p));
}

/* One that may be below 0. */
static int32_t whole(parser *p) {
    const base_view w = word(p);
    const bool below = w.size && w.data[0] == '-';
    const uint32_t n = number_of(p, below ? (base_view){w.data + 1, w.size - 1} : w);
    if (n > (uint32_t)INT32_MAX + below) bad(p, "a whole number was expected, of 32 bits");
    return below ? (int32_t)(0 - n) : (int32_t)n;
}

static float real(parser *p) {
    double value = 0;
    if (!ir_parse_float(word(p), &value) || !isfinite(value) || (double)(float)value != value)
        bad(p, "a 32-bit float was expected");
    return p->status == BERYL_OK ? (float)value : 0;
}

/* Of what follows a percent sign. */
static uint32_t id_of(parser *p, base_view w) {
    if (w.size < 2 || w.data[0] != '%') bad(p, "a value was expected");
    const uint32_t id =
        p->status == BERYL_OK ? number_of(p, (base_view){w.data + 1, w.size - 1}) : 0;
    if (id >= ID_MAX) bad(p, "an id beyond all ids");
    return p->status == BERYL_OK ? id : 0;
}

static graph_value value(parser *p) {
    const uint32_t id = id_of(p, word(p));
    if (p->status == BERYL_OK && (id >= p->ids.count || !p->ids.data[id]))
        bad(p, "a value that no line before makes");
    return p->status == BERYL_OK ? p->ids.data[id] : 0;
}

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In quotes; as long as the graph. */
static const char *name(parser *p) {
    need(p, "\"");
    size_t end = p->at, n = 0;
    while (end < p->size && p->text[end] != '"' && p->text[end] != '\n') end++;
    if (p->status == BERYL_OK && (end == p->size || p->text[end] != '"'))
        bad(p, "a name without an end");
    char *copy = p->status == BERYL_OK ? base_arena_take(&p->g->arena, end - p->at + 1, 1) : NULL;
    if (!copy) no_memory(p);
    while (p->status == BERYL_OK && p->at < end) {
        char c = p->text[p->at++];
        if (c == '\\') {
            const int high = end - p->at < 2 ? -1 : digit_of(p->text[p->at]),
                      low = end - p->at < 2 ? -1 : digit_of(p->text[p->at + 1]);
            if (high < 0 || low < 0 || high + low == 0 || high > 7)
                bad(p, "a backslash without two digits");
            c = (char)(high * 16 + low);
            p->at += 2;
        }
        if (!c) bad(p, "a zero byte");
        if (copy) copy[n++] = c;
    }
    p->at = end + (end < p->size);
    return p->status == BERYL_OK ? copy : "";
}

/* ---- dimensions ------------------------------------------------------------------------------ */

typedef struct expression { /* a word, and what is left of it */
    parser *p;
    base_view left;
    uint32_t depth;
} expression;

static bool takes(expression *e, const char *text) {
    const base_view begin = base_view_of(text);
    if (e->p->status != BERYL_OK || e->left.size < begin.size ||
        memcmp(e->left.data, begin.data, begin.size) != 0)
        return false;
    e->left = (base_view){e->left.data + begin.size, e->left.size - begin.size};
    return true;
}

static void needs(expression *e, const char *text) {
    if (!takes(e, text))
        bad(e->p, "a dimension is a number, an extent, or made of them by + * "
                  "ceil( / )");
}

/* Up to the next sign. */
static base_view operand(expression *e) {
    base_view w = {e->left.data, 0};
    while (w.size < e->left.size && !strchr("+*/()", w.data[w.size])) w.size++;
    e->left = (base_view){w.data + w.size, e->left.size - w.size};
    return w;
}

static graph_sum sum(expression *e);

static graph_sum factor(expression *e) {
    graph *g = e->p->g;
    graph_sum s = {0};
    if (takes(e, "ceil(")) {
        s = sum(e);
        needs(e, "/");
        const uint32_t divisor = number_of(e->p, operand(e));
        needs(e, ")");
        if (e->p->status == BERYL_OK) graph_sum_quotient(g, &s, divisor);
        return s;
    }
    if (takes(e, "(")) {
        s = sum(e);
        needs(e, ")");
        return s;
    }
    const base_view w = operand(e);
    graph_dim d = {0, 0};
    for (uint32_t i = 1; i <= g->n_extent; i++)
        if (!g->extents[i].divisor && is(w, g->extents[i].name)) d.extent = (uint8_t)i;
    if (!d.extent) d.size = number_of(e->p, w);
    graph_sum_of(g, d, &s);
    return s;
}

static graph_sum product(expression *e) {
    graph_sum s = factor(e);
    while (takes(e, "*")) {
        const graph_sum more = factor(e);
        if (!graph_sum_times(e->p->g, &s, &more)) graph_sum_refuse(e->p->g);
    }
    return s;
}

static graph_sum sum(expression *e) {
    if (++e->depth > NESTED_MAX) bad(e->p, "brackets within brackets within brackets");
    graph_sum s = e->p->status == BERYL_OK ? product(e) : (graph_sum){0};
    while (takes(e, "+")) {
        const graph_sum more = product(e);
        if (!graph_sum_add(e->p->g, &s, &more)) graph_sum_refuse(e->p->g);
    }
    e->depth--;
    return s;
}

static graph_dim dim_of(parser *p, base_view w) {
    expression e = {p, w, 0};
    const graph_sum s = sum(&e);
    if (e.left.size) needs(&e, "+");
    return p->status == BERYL_OK && p->g->error.code == BERYL_OK ? graph_sum_dim(p->g, &s)
                                                                 : (graph_dim){0, 0};
}

static uint32_t dims(parser *p, graph_dim *out) {
    uint32_t rank = 0;
    need(p, "[");
    while (p->status == BERYL_OK && !is(peek(p), "]")) {
        const base_view w = word(p);
        const graph_dim d = dim_of(p, w);
        if (rank == GRAPH_RANK_MAX) bad(p, "more than 10 dimensions");
        if (p->status == BERYL_OK) out[rank++] = d;
    }
    need(p, "]");
    return p->status == BERYL_OK ? rank : 0;
}

static base_type type(parser *p) {
    const base_view w = word(p);
    for (int i = 0; i < TYPE_COUNT; i++)
        if (is(w, base_type_name((base_type)i))) return (base_type)i;
    bad(p, "a type was expected");
    return TYPE_F32;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void parse_extent(parser *p) {
    const base_view w = word(p);
    bool good = graph_extent_is_word(w);
    for (uint32_t i = 1; i <= p->g->n_extent; i++) good = good && !is(w, p->g->extents[i].name);
    if (!good) bad(p, "a new word was expected");
    const char *copy = good ? base_arena_text(&p->g->arena, w.data, w.size) : NULL;
    if (!copy) no_memory(p);
    const uint32_t bound = number(p);
    if (p->status == BERYL_OK) graph_extent_add(p->g, copy, bound);
}

static graph_value parse_input(parser *p) {
    graph_dim d[GRAPH_RANK_MAX];
    const base_type of = type(p);
    if (!graph_type_is_plain(of)) bad(p, "an input has a plain type, without blocks");
    const uint32_t rank = dims(p, d);
    const char *text = name(p);
    return p->status == BERYL_OK ? graph_input(p->g, text, of, rank, d) : 0;
}

static graph_value parse_stored(parser *p, bool state) {
    graph_dim d[GRAPH_RANK_MAX];
    uint32_t sizes[STORE_RANK_MAX];
    const base_type of = type(p);
    const bool plain = of == TYPE_F32 || of == TYPE_F16 || of == TYPE_I32;
    if (state ? !plain && of != TYPE_Q8_0 : !plain && !base_type_is_weight(of))
        bad(p, "no stored tensor has this type");
    const uint32_t rank = dims(p, d);
    const char *text = name(p);
    if (rank < 1 || rank > STORE_RANK_MAX) bad(p, "a stored tensor has 1 to 10 dimensions");
    if (p->status != BERYL_OK) return 0;
    uint64_t bytes = base_type_row_bytes(of, d[rank - 1].size), rows = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (d[i].extent || !d[i].size) bad(p, "a stored tensor has constant dimensions");
        if (i + 1 < rank) rows = rows > INT32_MAX ? rows : rows * d[i].size;
        sizes[i] = d[i].size;
    }
    if (p->status != BERYL_OK) return 0;
    if (!bytes || rows > INT32_MAX || bytes > (UINT64_C(1) << 40) / rows)
        bad(p, "no whole blocks, or more bytes than there can be");
    if (p->status == BERYL_OK) p->stored_bytes += bytes *= rows;
    if (p->stored_bytes > UINT64_C(1) << 40) bad(p, "more bytes than there can be");
    if (p->status != BERYL_OK) return 0;
    const uint32_t index =
        state ? store_add_state(p->store, text, of, rank, sizes, 1)
              : store_add_weight(p->store, text, of, rank, sizes, 0, 0, p->file_bytes, false);
    if (index == UINT32_MAX) no_memory(p);
    else if (!state)
        p->file_bytes += (bytes + GRAPH_TEXT_ALIGN - 1) / GRAPH_TEXT_ALIGN * GRAPH_TEXT_ALIGN;
    return index == UINT32_MAX ? 0 : graph_stored(p->g, p->store, index);
}

/* What an attention may say of its slots. */
static void parse_slots(parser *p, graph_value attention) {
    if (!is(peek(p), "apart")) return;
    word(p);
    const uint32_t most = number(p);
    if (attention && p->status == BERYL_OK) graph_attention_distinct_slots(p->g, attention, most);
}

/* The node, NULL: none. */
static const graph_node *parse_operation(parser *p, base_op op) {
    const base_op_info *info = &base_ops[op];
    graph_value in[GRAPH_IN_MAX] = {0};
    graph_attrs attr = {0};
    uint32_t n = 0;
    while (p->status == BERYL_OK && n < GRAPH_IN_MAX && base_view_begins(peek(p), BASE_VIEW("%")))
        in[n++] = value(p);
    if (n < info->n_in_min || n > info->n_in_max)
        bad(p, "the operation takes more or fewer values");
    if (!*info->inputs || !graph_op_is_built(op)) bad(p, "passes alone make this operation");
    for (uint32_t i = 0; p->status == BERYL_OK && info->attributes[i]; i++) {
        if (info->attributes[i] == 'F') attr.at[i].f = real(p);
        else if (info->attributes[i] == 'I') attr.at[i].i = whole(p);
        else attr.at[i].u = number(p);
    }
    if (p->status != BERYL_OK) return NULL;
    const graph_value v = graph_op(p->g, op, in, attr);
    if (op == OP_ATTENTION) parse_slots(p, v);
    return v ? &p->g->nodes.data[graph_tensor_at(p->g, v)->node] : NULL;
}

static uint32_t parse_axes(parser *p, uint32_t *axes) {
    uint32_t rank = 0;
    need(p, "[");
    while (p->status == BERYL_OK && !is(peek(p), "]")) {
        const uint32_t axis = number(p);
        if (rank == GRAPH_RANK_MAX) bad(p, "more than 10 axes");
        if (p->status == BERYL_OK) axes[rank++] = axis;
    }
    need(p, "]");
    return p->status == BERYL_OK ? rank : 0;
}

static graph_value parse_view(parser *p, base_view_kind view) {
    graph_dim d[GRAPH_RANK_MAX];
    uint32_t told[GRAPH_RANK_MAX] = {0}, rank = 0;
    const graph_value x = value(p);
    const char *takes = base_views[view].takes;
    for (uint32_t i = 0; p->status == BERYL_OK && takes[i]; i++) {
        if (takes[i] == 'D') rank = dims(p, d);
        else if (takes[i] == 'A') rank = parse_axes(p, told);
        else told[i] = takes[i] == 'S' && line_ends(p) ? 1 : number(p);
    }
    return p->status == BERYL_OK ? graph_view(p->g, view, x, told, rank, d) : 0;
}

static void keep_id(parser *p, uint32_t id, graph_value v) {
    while (p->status == BERYL_OK && p->ids.count <= id)
        if (!base_vec_add(p->g->heap, &p->ids)) no_memory(p);
    if (p->status == BERYL_OK && p->ids.data[id]) bad(p, "an id that was used before");
    if (p->status == BERYL_OK) p->ids.data[id] = v;
}

static void parse_making(parser *p) {
    uint32_t ids[GRAPH_OUT_MAX], n = 0;
    while (p->status == BERYL_OK && n < GRAPH_OUT_MAX && !is(peek(p), "="))
        ids[n++] = id_of(p, word(p));
    need(p, "=");
    const base_view what = word(p);
    const graph_node *node = NULL;
    graph_value v = 0;
    int op = 0, view = 0;
    while (op < OP_COUNT && !is(what, graph_op_name((base_op)op))) op++;
    while (view < VIEW_COUNT && !is(what, base_views[view].name)) view++;
    if (p->status != BERYL_OK) return;
    if (is(what, "input")) v = parse_input(p);
    else if (is(what, "weight") || is(what, "state")) v = parse_stored(p, is(what, "state"));
    else if (view < VIEW_COUNT) v = parse_view(p, (base_view_kind)view);
    else if (op < OP_COUNT) node = parse_operation(p, (base_op)op);
    else bad(p, "no such operation");
    if (n != (op < OP_COUNT ? base_ops[op].n_out : 1u))
        bad(p, "more or fewer values than the operation makes");
    if (p->status != BERYL_OK || p->g->error.code != BERYL_OK) return;
    for (uint32_t i = 0; i < n; i++) keep_id(p, ids[i], node ? node->out[i] : v);
}

static void parse_line(parser *p) {
    p->line_at = p->at;
    if (is(peek(p), "extent")) {
        word(p);
        parse_extent(p);
    } else if (is(peek(p), "output")) {
        word(p);
        const graph_value v = value(p);
        const char *text = name(p);
        if (p->status == BERYL_OK) graph_output(p->g, v, text);
    } else {
        parse_making(p);
    }
    if (!line_ends(p)) bad(p, "the line is too long");
    beryl_error inside = {0};
    beryl_status status = graph_status(p->g, &inside);
    if (p->status != BERYL_OK || status == BERYL_OK) return;
    p->status = base_fail_at(p->error, status == BERYL_NO_MEMORY ? status : BERYL_BAD_INPUT,
                             p->line_at, "graph text, byte %zu: %s", p->line_at, inside.message);
}

beryl_status graph_text_parse(const char *text, size_t size, graph *g, graph_store *store,
                              uint64_t *file_bytes, beryl_error *error) {
    parser p = {.text = text, .size = size, .g = g, .store = store, .error = error};
    while (p.status == BERYL_OK && p.at < size) {
        if (!line_ends(&p)) parse_line(&p);
        while (p.at < size && text[p.at] != '\n') p.at++;
        if (p.at < size) p.at++;
    }
    base_vec_fini(g->heap, &p.ids);
    *file_bytes = p.file_bytes;
    return p.status;
}
