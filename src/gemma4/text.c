/* text.c - the text model as a graph of plain operations. The layer's order is that of the
 * published model: norms before and after each branch, values normed without weight, the
 * residual stream scaled whole at the layer's end.
 *
 * Where few rows want logits, the stream is cut down to them as soon as the last cache is
 * written: only k and v of the last owning layer still see every token. */
#include "base/build.h"
#include "base/error.h"
#include "gemma4/gemma4.h"

#include <math.h>

typedef struct building { /* of one graph */
    const gemma4_model *m;
    const gemma4_config *c;
    const graph_store *store;
    graph *g;
    gemma4_text *t;
    graph_dim n; /* rows as they now are: n_token, later n_output */
    bool apart;  /* every row has another slot */
    bool trains; /* keys and values are of the run, adapters are states */
    gemma4_media media;
    uint32_t near;                               /* every position is below; 0: any */
    graph_value slot, pos, angles[2], per_layer; /* for those rows; per_layer [n, L, P] */
    const gemma4_lora *lora;
    /* [n, (i + 1) r], of those rows; 0: there are no adapters */
    graph_value lora_scales[LORA_SHARE_MAX];
    float dropout; /* training: the chance that a number of A's input is dropped */
} building;

static graph_value stored(building *b, uint32_t index) {
    return graph_stored(b->g, b->store, index);
}

/* y with the scale that stands beside the weight it was made of. */
static graph_value scaled(building *b, graph_value y, uint32_t weight) {
    const uint32_t scale = b->store->tensors.data[weight].scale;
    return scale == GEMMA4_NONE ? y : graph_mul(b->g, y, stored(b, scale));
}

static graph_value linear(building *b, graph_value x, uint32_t weight) {
    return scaled(b, graph_linear(b->g, x, stored(b, weight)), weight);
}

/* ---- adapters -------------------------------------------------------------------------------- */

static const gemma4_lora_pair *pair_of(const building *b, format_lora_target target, uint32_t l) {
    if (!BUILD_HAS_ADAPTERS || !b->lora) return NULL;
    const gemma4_lora_pair *p = &b->lora->pairs[gemma4_lora_at(b->m, target, l)];
    return p->a != GEMMA4_NONE ? p : NULL;
}

static bool trains(const building *b) {
    return BUILD_HAS_TRAINING && b->trains;
}

/* A * x, scaled, for all targets of the vector x [n, k] that has `target`; 0: there are none. In
 * training x itself: then each target has an A of its own. */
static graph_value low_of(building *b, graph_value x, format_lora_target target, uint32_t l) {
    format_lora_target first;
    if (trains(b)) return x;
    const uint32_t n = gemma4_lora_share(target, &first);
    const gemma4_lora_pair *p = NULL;
    for (uint32_t i = 0; !p && i < n; i++) p = pair_of(b, (format_lora_target)(first + i), l);
    if (!p) return 0;
    graph_value low = graph_linear(b->g, x, stored(b, p->a));
    return graph_mul(b->g, low, b->lora_scales[p->n - 1]);
}

/* What is added to a product; 0: nothing. Where numbers are dropped, each target has draws of its
 * own. */
static graph_value delta(building *b, graph_value low, format_lora_target target, uint32_t l) {
    const gemma4_lora_pair *p = low ? pair_of(b, target, l) : NULL;
    if (!p) return 0;
    if (trains(b)) {
        const graph_draw draw = {b->t->dropout_key, gemma4_lora_at(b->m, target, l)};
        if (b->dropout > 0) low = graph_dropout(b->g, draw, low, b->dropout);
        low = graph_scale(b->g, graph_linear(b->g, low, stored(b, p->a)), p->factor);
    } else if (p->n > 1) {
        const uint32_t r = graph_tensor_at(b->g, low)->dim[1].size / p->n;
        low = graph_narrow(b->g, low, 1, p->at * r, r, 1);
    }
    return graph_linear(b->g, low, stored(b, p->b));
}

/* Of experts: x [n, 1 or used, k], ids [n, used]. */
static graph_value delta_id(building *b, graph_value x, graph_value ids, format_lora_target target,
                            uint32_t l) {
    const gemma4_lora_pair *p = pair_of(b, target, l);
    if (!p) return 0;
    graph_value low = graph_linear_id(b->g, x, stored(b, p->a), ids);
    low = graph_mul(b->g, low, graph_unsqueeze(b->g, b->lora_scales[0], 1));
    return graph_linear_id(b->g, low, stored(b, p->b), ids);
}

static graph_value with(building *b, graph_value y, graph_value more) {
    return more ? graph_add(b->g, y, more) : y;
}

/* A product and what adapters add to it, whose A is before it: after A, products of one vector
 * stand together and become one dispatch. */
static graph_value adapted(building *b, graph_value x, uint32_t weight, format_lora_target target,
                           uint32_t l) {
    const graph_value more = delta(b, low_of(b, x, target, l), target, l);
    return with(b, linear(b, x, weight), more);
}

/* What each row takes of each rank. */
static void scale_rows(building *b) {
    if (!BUILD_HAS_ADAPTERS || !b->lora || trains(b)) return;
    const graph_value all = graph_gather_rows(b->g, stored(b, b->lora->scales), b->slot, 1);
    const uint32_t r = graph_tensor_at(b->g, all)->dim[1].size / LORA_SHARE_MAX;
    for (uint32_t i = 0; i < LORA_SHARE_MAX; i++)
        b->lora_scales[i] = graph_narrow(b->g, all, 1, 0, (i + 1) * r, 1);
}

/* ---- products of experts --------------------------------------------------------------------- */

/* x [n, 1 or used, k], ids [n, used]. */
static graph_value linear_id(building *b, graph_value x, uint32_t weight, graph_value ids) {
    const uint32_t scale = b->store->tensors.data[weight].scale;
    graph_value y = graph_linear_id(b->g, x, stored(b, weight), ids);
    if (scale == GEMMA4_NONE || b->store->tensors.data[scale].dim[0] == 1)
        return scaled(b, y, weight);
    graph_value own = graph_gather_rows(b->g, stored(b, scale), ids, 1);
    const graph_tensor *t = graph_tensor_at(b->g, ids);
    return graph_mul(b->g, y,
                     graph_reshape(b->g, own, 3, (graph_dim[]){t->dim[0], t->dim[1], {1, 0}}));
}

static graph_value norm(building *b, graph_value x, uint32_t weight) {
    return graph_rms_norm(b->g, x, weight == GEMMA4_NONE ? 0 : stored(b, weight), b->c->rms_eps);
}

static graph_dim constant(uint32_t size) {
    return (graph_dim){size, 0};
}

/* [n, h * d] as [n, h, d]. */
static graph_value heads(building *b, graph_value x, uint32_t n_head, uint32_t head_dim) {
    return graph_reshape(b->g, x, 3, (graph_dim[]){b->n, constant(n_head), constant(head_dim)});
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static void add_inputs(building *b, const gemma4_text_options *o) {
    gemma4_text *t = b->t;
    graph *g = b->g;
    uint32_t half[2] = {b->c->head_dim_swa / 2, b->c->head_dim / 2};
    t->token_extent = graph_extent_add(g, "n_token", o->n_token);
    b->n = (graph_dim){o->n_token, t->token_extent};
    t->slot = graph_input(g, "slot", TYPE_I32, 1, &b->n);
    t->pos = graph_input(g, "pos", TYPE_I32, 1, &b->n);
    for (int i = 0; i < 2; i++)
        t->angles[i] = graph_input(g, i ? "angles" : "angles_swa", TYPE_F32, 3,
                                   (graph_dim[]){b->n, constant(2), constant(half[i])});
    if (!o->decode) t->tokens = graph_input(g, "tokens", TYPE_I32, 1, &b->n);
    if (o->media) {
        t->soft = graph_input(g, "soft", TYPE_F32, 2, (graph_dim[]){b->n, constant(b->c->n_embd)});
        t->is_soft = graph_input(g, "is_soft", TYPE_BOOL, 2, (graph_dim[]){b->n, constant(1)});
    }
    if (o->media >= GEMMA4_MEDIA_SLIDING || trains(b)) {
        t->first = graph_input(g, "first", TYPE_I32, 1, &b->n);
        t->last = graph_input(g, "last", TYPE_I32, 1, &b->n);
    }
    if (trains(b)) {
        t->first_global = graph_input(g, "first_global", TYPE_I32, 1, &b->n);
        t->last_global = graph_input(g, "last_global", TYPE_I32, 1, &b->n);
    }
    if (b->m->per_layer_on_host && b->c->n_per_layer)
        t->per_layer_rows =
            graph_input(g, "per_layer_rows", TYPE_F32, 2,
                        (graph_dim[]){b->n, constant(b->c->n_layer * b->c->n_per_layer)});
    graph_dim out = b->n;
    t->output_extent = t->token_extent;
    if (!o->decode && o->n_output) {
        t->output_extent = graph_extent_add(g, "n_output", o->n_output);
        out = (graph_dim){o->n_output, t->output_extent};
        t->output_rows = graph_input(g, "output_rows", TYPE_I32, 1, &out);
    }
    if (t->output_rows && !trains(b)) {
        t->output_slot = graph_input(g, "output_slot", TYPE_I32, 1, &out);
        t->output_pos = graph_input(g, "output_pos", TYPE_I32, 1, &out);
        for (int i = 0; i < 2; i++)
            t->output_angles[i] =
                graph_input(g, i ? "output_angles" : "output_angles_swa", TYPE_F32, 3,
                            (graph_dim[]){out, constant(2), constant(half[i])});
    }
    if (o->sample)
        t->settings = graph_input(g, "settings", TYPE_U32, 2, (graph_dim[]){out, constant(8)});
    b->slot = t->slot;
    b->pos = t->pos;
    b->angles[0] = t->angles[0];
    b->angles[1] = t->angles[1];
    scale_rows(b);
}

/* Adapters change the embedding before it is scaled. */
static graph_value with_embedding(building *b, graph_value h, graph_value tokens) {
    const gemma4_lora_pair *p = pair_of(b, LORA_EMBED, 0);
    if (!p) return h;
    const float factor = sqrtf((float)b->c->n_embd) * (trains(b) ? p->factor : 1);
    graph_value low = graph_gather_rows(b->g, stored(b, p->a), tokens, factor);
    if (!trains(b)) low = graph_mul(b->g, low, b->lora_scales[0]);
    return graph_add(b->g, h, graph_linear(b->g, low, stored(b, p->b)));
}

/* The per-layer inputs of all layers times sqrt 2: norm(proj x / sqrt d) + sqrt(P) row, [n, L,
 * P]. */
static graph_value per_layer_inputs(building *b, graph_value x, graph_value tokens) {
    const gemma4_config *c = b->c;
    graph_dim dims[3] = {b->n, constant(c->n_layer), constant(c->n_per_layer)};
    /* rms(c / sqrt d) with eps is rms(c) with d * eps: the division need not be done. */
    graph_value context = adapted(b, x, b->m->per_layer_model_proj, LORA_MODEL_PROJ, 0);
    context = graph_reshape(b->g, context, 3, dims);
    context = graph_rms_norm(b->g, context, stored(b, b->m->per_layer_proj_norm),
                             c->rms_eps * (float)c->n_embd);
    float factor = sqrtf((float)c->n_per_layer);
    graph_value rows =
        b->m->per_layer_on_host
            ? graph_scale(b->g, b->t->per_layer_rows, factor)
            : graph_gather_rows(b->g, stored(b, b->m->per_layer_token_embd), tokens, factor);
    rows = scaled(b, rows, b->m->per_layer_token_embd);
    return graph_add(b->g, context, graph_reshape(b->g, rows, 3, dims));
}

/* ---- a layer --------------------------------------------------------------------------------- */

typedef struct raw_qkv {
    graph_value q, k, v;
} raw_qkv; /* [n, rows], before norms; 0: none */

static raw_qkv project(building *b, uint32_t l, graph_value x, bool want_q, bool want_kv) {
    const gemma4_layer *layer = &b->m->layers[l];
    raw_qkv r = {0, 0, 0}, more = {0, 0, 0};
    const graph_value low = want_q || want_kv ? low_of(b, x, LORA_Q, l) : 0;
    if (want_q) more.q = delta(b, low, LORA_Q, l);
    if (want_kv) more.k = delta(b, low, LORA_K, l);
    if (want_kv) more.v = delta(b, low, LORA_V, l);
    if (layer->attn_qkv != GEMMA4_NONE) {
        uint32_t q = b->c->n_head * layer->head_dim, kv = layer->n_kv * layer->head_dim;
        graph_value all = linear(b, x, layer->attn_qkv);
        if (want_q) r.q = graph_copy(b->g, graph_narrow(b->g, all, 1, 0, q, 1));
        if (want_kv) r.k = graph_copy(b->g, graph_narrow(b->g, all, 1, q, kv, 1));
        if (want_kv) r.v = graph_copy(b->g, graph_narrow(b->g, all, 1, q + kv, kv, 1));
    } else {
        if (want_q) r.q = linear(b, x, layer->attn_q);
        if (want_kv) r.k = linear(b, x, layer->attn_k);
        if (want_kv && layer->attn_v != GEMMA4_NONE) r.v = linear(b, x, layer->attn_v);
    }
    if (want_q) r.q = with(b, r.q, more.q);
    if (want_kv) r.k = with(b, r.k, more.k);
    if (want_kv) r.v = r.v ? with(b, r.v, more.v) : r.k;
    return r;
}

/* Keys: normed and rotated; values: normed without weight. Gives the caches as they then are, in
 * training what they would hold. */
static void write_cache(building *b, const gemma4_layer *layer, raw_qkv r, graph_value *k_cache,
                        graph_value *v_cache) {
    graph_value k = norm(b, heads(b, r.k, layer->n_kv, layer->head_dim), layer->attn_k_norm);
    k = graph_rope(b->g, k, b->angles[!layer->sliding]);
    graph_value v = norm(b, heads(b, r.v, layer->n_kv, layer->head_dim), GEMMA4_NONE);
    if (trains(b)) {
        *k_cache = graph_unsqueeze(b->g, k, 0);
        *v_cache = graph_unsqueeze(b->g, v, 0);
        return;
    }
    *k_cache = graph_kv_write(b->g, stored(b, layer->k_cache), k, b->slot, b->pos);
    *v_cache = graph_kv_write(b->g, stored(b, layer->v_cache), v, b->slot, b->pos);
}

/* From here on only the output rows are followed. */
static graph_value keep_output_rows(building *b, graph_value h) {
    gemma4_text *t = b->t;
    b->n = graph_tensor_at(b->g, t->output_rows)->dim[0];
    b->slot = t->output_slot;
    b->pos = t->output_pos;
    b->angles[0] = t->output_angles[0];
    b->angles[1] = t->output_angles[1];
    scale_rows(b);
    if (b->per_layer) {
        graph_dim whole = constant(b->c->n_layer * b->c->n_per_layer);
        graph_dim n_token = graph_tensor_at(b->g, b->per_layer)->dim[0];
        graph_value flat = graph_reshape(b->g, b->per_layer, 2, (graph_dim[]){n_token, whole});
        flat = graph_gather_rows(b->g, flat, t->output_rows, 1);
        b->per_layer = graph_reshape(
            b->g, flat, 3,
            (graph_dim[]){b->n, constant(b->c->n_layer), constant(b->c->n_per_layer)});
    }
    return graph_gather_rows(b->g, h, t->output_rows, 1);
}

/* Nodes are added one statement at a time: C leaves the order of arguments open, the graph must
 * not. */
static graph_value gated(building *b, uint32_t l, graph_value x) {
    const gemma4_layer *layer = &b->m->layers[l];
    const graph_value low = low_of(b, x, LORA_GATE, l);
    const graph_value more = delta(b, low, LORA_GATE, l);
    const graph_value too = delta(b, low, LORA_UP, l);
    graph_value gate = linear(b, x, layer->ffn_gate);
    graph_value up = linear(b, x, layer->ffn_up);
    gate = with(b, gate, more);
    up = with(b, up, too);
    return adapted(b, graph_geglu(b->g, gate, up), layer->ffn_down, LORA_DOWN, l);
}

static graph_value experts(building *b, uint32_t l, graph_value h) {
    const gemma4_config *c = b->c;
    const gemma4_layer *layer = &b->m->layers[l];
    graph *g = b->g;
    graph_value m = norm(b, h, layer->ffn_norm);
    graph_value dense = gated(b, l, m);
    dense = norm(b, dense, layer->post_ffw_norm_1);
    /* Router: the softmax over the chosen logits is the softmax over all, renormalised over the
     * chosen. Its input is divided by sqrt d; the chosen logits can be instead, since that
     * leaves their order. */
    graph_value r = norm(b, h, layer->ffn_gate_inp_scale);
    graph_value ids,
        gates = graph_topk(g, linear(b, r, layer->ffn_gate_inp), c->n_expert_used, &ids);
    gates = graph_softmax(g, graph_scale(g, gates, 1 / sqrtf((float)c->n_embd)));
    gates =
        graph_mul(g, gates, graph_gather_rows(g, stored(b, layer->ffn_down_exps_scale), ids, 1));
    graph_value x = graph_reshape(g, norm(b, h, layer->pre_ffw_norm_2), 3,
                                  (graph_dim[]){b->n, constant(1), constant(c->n_embd)});
    const uint32_t w = c->n_ff_expert;
    const graph_value more = delta_id(b, x, ids, LORA_GATE_UP_EXPS, l);
    graph_value gate, up;
    if (layer->ffn_gate_up_exps != GEMMA4_NONE) {
        graph_value both = with(b, linear_id(b, x, layer->ffn_gate_up_exps, ids), more);
        gate = graph_narrow(g, both, 2, 0, w, 1);
        up = graph_narrow(g, both, 2, w, w, 1);
    } else {
        gate = linear_id(b, x, layer->ffn_gate_exps, ids);
        up = linear_id(b, x, layer->ffn_up_exps, ids);
        if (more) gate = graph_add(g, gate, graph_narrow(g, more, 2, 0, w, 1));
        if (more) up = graph_add(g, up, graph_narrow(g, more, 2, w, w, 1));
    }
    graph_value middle = graph_geglu(g, gate, up);
    const graph_value last = delta_id(b, middle, ids, LORA_DOWN_EXPS, l);
    graph_value each = with(b, linear_id(b, middle, layer->ffn_down_exps, ids), last);
    graph_value sum = graph_weighted_sum(g, each, gates);
    return graph_add(g, dense, norm(b, sum, layer->post_ffw_norm_2));
}

static graph_value feed_forward(building *b, uint32_t l, graph_value h) {
    const gemma4_layer *layer = &b->m->layers[l];
    graph_value f;
    if (b->c->n_expert) {
        f = experts(b, l, h);
    } else {
        f = gated(b, l, norm(b, h, layer->ffn_norm));
    }
    return graph_add(b->g, h, norm(b, f, layer->post_ffw_norm));
}

static graph_value per_layer_branch(building *b, const gemma4_layer *layer, uint32_t l,
                                    graph_value h) {
    graph_value slice = graph_squeeze(b->g, graph_narrow(b->g, b->per_layer, 1, l, 1, 1), 1);
    graph_value y = adapted(b, h, layer->inp_gate, LORA_INP_GATE, l);
    y = adapted(b, graph_geglu(b->g, y, slice), layer->proj, LORA_PROJ, l);
    /* The inputs are sqrt 2 too large, so this is rms with 2 * eps. */
    graph_value branch = graph_rms_norm(b->g, y, stored(b, layer->post_norm), 2 * b->c->rms_eps);
    return graph_add(b->g, h, branch);
}

/* One layer. cut: this is the last owner and only output rows go on. Gives 0 where nothing goes
 * on. */
static graph_value layer_of(building *b, uint32_t l, graph_value h, bool cut, bool stop,
                            graph_value (*caches)[2]) {
    const gemma4_layer *layer = &b->m->layers[l];
    graph *g = b->g;
    graph_value x = norm(b, h, layer->attn_norm);
    raw_qkv r = project(b, l, x, !cut && !stop, layer->owner);
    if (layer->owner) write_cache(b, layer, r, &caches[l][0], &caches[l][1]);
    if (stop) return 0;
    if (cut) {
        h = keep_output_rows(b, h);
        r = project(b, l, norm(b, h, layer->attn_norm), true, false);
    }
    graph_value q =
        graph_rope(g, norm(b, heads(b, r.q, b->c->n_head, layer->head_dim), layer->attn_q_norm),
                   b->angles[!layer->sliding]);
    uint32_t window = layer->sliding && b->m->context > b->c->window ? b->c->window : 0;
    const graph_value k = caches[layer->donor][0], v = caches[layer->donor][1];
    graph_value o;
    if (trains(b))
        o = graph_attention_range(g, q, k, v, b->slot,
                                  layer->sliding ? b->t->first : b->t->first_global,
                                  layer->sliding ? b->t->last : b->t->last_global, 1.0f);
    else if (layer->sliding && b->media >= GEMMA4_MEDIA_SLIDING)
        o = graph_attention_range(g, q, k, v, b->slot, b->t->first, b->t->last, 1.0f);
    else
        o = graph_attention(g, q, k, v, b->slot, b->media == GEMMA4_MEDIA_ALL ? b->t->last : b->pos,
                            1.0f, window);
    if (b->apart) graph_attention_distinct_slots(g, o, b->near);
    o = graph_reshape(g, o, 2, (graph_dim[]){b->n, constant(b->c->n_head * layer->head_dim)});
    o = adapted(b, o, layer->attn_output, LORA_O, l);
    h = graph_add(g, h, norm(b, o, layer->post_attention_norm));
    h = feed_forward(b, l, h);
    if (b->c->n_per_layer) h = per_layer_branch(b, layer, l, h);
    if (layer->layer_output_scale != GEMMA4_NONE)
        h = graph_mul(g, h, stored(b, layer->layer_output_scale));
    return h;
}

/* ---- the head -------------------------------------------------------------------------------- */

static void head(building *b, const gemma4_text_options *o, graph_value h) {
    gemma4_text *t = b->t;
    graph_value z = norm(b, h, b->m->output_norm);
    if (o->hidden) t->hidden[b->c->n_layer] = z, graph_output(b->g, z, "hidden");
    const uint32_t weight = b->m->output != GEMMA4_NONE ? b->m->output : b->m->token_embd;
    if (trains(b)) {
        const graph_dim rows = graph_tensor_at(b->g, z)->dim[0];
        t->labels = graph_input(b->g, "labels", TYPE_I32, 1, &rows);
        /* without logits of all rows, where they are of the weight alone */
        if (!pair_of(b, LORA_HEAD, 0) && b->store->tensors.data[weight].scale == GEMMA4_NONE) {
            t->losses = graph_linear_cross_entropy(b->g, z, stored(b, weight), t->labels,
                                                   b->c->softcap > 0 ? b->c->softcap : 0);
            return;
        }
    }
    graph_value logits = adapted(b, z, weight, LORA_HEAD, 0);
    if (b->c->softcap > 0) logits = graph_softcap(b->g, logits, b->c->softcap);
    if (trains(b)) {
        t->losses = graph_cross_entropy(b->g, logits, t->labels);
        return;
    }
    if (b->m->suppress != GEMMA4_NONE) logits = graph_add(b->g, logits, stored(b, b->m->suppress));
    t->logits = logits;
    graph_output(b->g, logits, "logits");
    if (!o->sample) return;
    t->chosen = graph_sample(b->g, logits, t->settings);
    graph_output(b->g, t->chosen, "chosen");
    graph_set_rows(b->g, stored(b, b->m->tokens), t->chosen, b->slot);
}

beryl_status gemma4_text_build(const gemma4_model *m, const graph_store *store, base_heap *heap,
                               const gemma4_text_options *o, gemma4_text *t, beryl_error *error) {
    *t = (gemma4_text){.g = graph_open(heap)};
    if (!t->g) return base_no_memory(error);
    t->g->halves = o->halves;
    building b = {.m = m,
                  .c = &m->config,
                  .store = store,
                  .g = t->g,
                  .t = t,
                  .media = o->media,
                  .lora = o->lora,
                  .apart = o->decode,
                  .trains = o->labels,
                  .dropout = BUILD_HAS_TRAINING ? o->dropout : 0,
                  .near = o->near};
    uint32_t n_layer = m->config.n_layer;
    graph_value(*caches)[2] = base_arena_take(&t->g->arena, n_layer, sizeof *caches);
    t->hidden = base_arena_take(&t->g->arena, n_layer + 1, sizeof *t->hidden);
    if (!caches || !t->hidden) return base_no_memory(error);
    add_inputs(&b, o);
    if (BUILD_HAS_TRAINING && b.dropout > 0)
        t->dropout_key = graph_input(t->g, "dropout_key", TYPE_U32, 1, &(graph_dim){2, 0});
    bool outputs = o->decode || o->n_output;
    graph_value tokens =
        o->decode ? graph_gather_rows(t->g, stored(&b, m->tokens), t->slot, 1) : t->tokens;
    graph_value h =
        graph_gather_rows(t->g, stored(&b, m->token_embd), tokens, sqrtf((float)m->config.n_embd));
    h = with_embedding(&b, scaled(&b, h, m->token_embd), tokens);
    if (o->media) h = graph_where(t->g, t->is_soft, t->soft, h);
    if (m->config.n_per_layer) b.per_layer = per_layer_inputs(&b, h, tokens);
    bool may_cut = outputs && !o->decode && !o->hidden && !o->media && !trains(&b);
    for (uint32_t l = 0; l < n_layer && graph_status(t->g, NULL) == BERYL_OK; l++) {
        if (o->hidden) t->hidden[l] = h, graph_output(t->g, h, "hidden");
        bool last = l == m->last_owner;
        if (trains(&b)) graph_recompute_begin(t->g);
        h = layer_of(&b, l, h, last && may_cut, last && !outputs, caches);
        if (trains(&b)) graph_recompute_end(t->g);
        if (!h) break;
    }
    if (trains(&b)) h = graph_gather_rows(t->g, h, t->output_rows, 1);
    else if (outputs && !may_cut && !o->decode) h = keep_output_rows(&b, h);
    if (outputs && graph_status(t->g, NULL) == BERYL_OK) head(&b, o, h);
    return graph_status(t->g, error);
}
