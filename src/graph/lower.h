/* lower.h - from a graph operation to steps of a plan. The functions of lower_*.c choose a kernel by (op, types, shapes,
 * capabilities), bind its storage by name and give parameters and grid as constants or extents. */
#ifndef GRAPH_LOWER_H
#define GRAPH_LOWER_H

#include "graph/graph.h"
#include "graph/lower_form.h"
#include "graph/store.h"
#include "kernels/kernels.h"

/* What a step is made from, for people: kept where a plan is to be explained (exec.h). */
typedef struct lower_texts { const char *request, *before, *after; } lower_texts; /* a WGSL file with its parts, or IR; the plan's or NULL */

typedef struct lowering { /* of one plan; lower_*.c read it */
    const graph *g;
    graph_store *store;
    device *device;
    const device_caps *caps;
    lower_settings settings;
    device_language language; /* of generated kernels */
    struct plan_record *record; /* what is recorded; NULL where it is only asked what would be done */
    base_arena *arena; /* of the plan: texts and the like */
    struct graph_exec_search *search; /* of schedules and choices; NULL: none (exec.h) */
    struct lower_choices *choices; /* of the node under way (lower_ir.h); NULL: the rules' */
    uint64_t *draws; /* tests: choices are drawn from it; NULL: they are not */
    lower_texts *texts; /* of the step under way; NULL: nobody asks */
} lowering;

/* What the settings say about a product with this weight, NULL: nothing. */
const lower_form *lower_form_of(const lowering *l, graph_value weight);
/* The form that was taken in the end, for who tunes: after lower_form_of, before the product's step ends. */
struct matvec_choice;
void lower_form_chosen(const lowering *l, const struct matvec_choice *choice);

/* The stored tensor behind a value (through views), NULL: none. */
const store_tensor *lower_stored(const lowering *l, graph_value v);
/* The weight whose rows are those of a matrix or of matrices; NULL: none, as for a state, or for a view with rows of another length. */
const store_tensor *lower_weight(const lowering *l, graph_value v);

/* A count of a run: factor * value of `extent` (0: just factor). */
typedef struct lower_count { uint64_t factor; uint8_t extent; } lower_count;
lower_count lower_count_of(graph_dim dim);
lower_count lower_count_times(lower_count a, uint64_t factor);
/* The rows of a tensor: product of all dimensions but the last (at most one of them an extent, else UNSUPPORTED at step end). */
lower_count lower_rows(const graph_tensor *t);

/* One dispatch. Errors stick until lower_step_end gives the first. */
typedef struct lower_step lower_step;
lower_step *lower_step_begin(lowering *l, const graph_node *node, const kernels_request *request);
/* The same with a text made elsewhere, in the lowering's language, whose function is `entry` (NULL: "main"); text NULL: its hash is
 * that of a known program. */
lower_step *lower_step_begin_made(lowering *l, const graph_node *node, const char *name, const char *entry, const kernels_text *kernel);
bool lower_program_known(const lowering *l, uint64_t hash);
void lower_bind(lower_step *s, const char *name, graph_value v);        /* the tensor's whole range (a view: its base's) */
void lower_bind_shard(lower_step *s, const char *name, graph_value v, uint32_t shard); /* of a stored weight */
/* Several stored weights through one binding, where they lie in one buffer within the device's largest binding:
 * word[i]: start of weight i (its shard 0), in 4-byte units from the start of the binding. */
bool lower_weights_fit(const lowering *l, const graph_value *weights, uint32_t n);
void lower_bind_weights(lower_step *s, const char *name, const graph_value *weights, uint32_t n, uint32_t *word);
/* Scratch memory of this step's node: same key in the same node gives the same memory. bytes: at the bounds. */
void lower_bind_scratch(lower_step *s, const char *name, uint32_t key, uint64_t bytes);
void lower_u32(lower_step *s, const char *name, uint32_t value);
void lower_f32(lower_step *s, const char *name, float value);
void lower_count_param(lower_step *s, const char *name, lower_count count);
/* Groups: ceil(count / per) in x (wrapped into y where it is more than the device allows: kernels use the linear index
 * workgroup_id.x + workgroup_id.y * num_workgroups.x and check it), y and z as given. */
void lower_groups(lower_step *s, lower_count count, uint32_t per);
void lower_groups_3d(lower_step *s, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y, lower_count z, uint32_t per_z);
beryl_status lower_step_end(lower_step *s, beryl_error *error);

/* Weight and state bytes that this node reads in a run of one token, for the report (added up over the plan). */
void lower_bytes(lowering *l, uint64_t bytes);

/* UNSUPPORTED: "OP of TYPES on DEVICE: what", with each type that the node reads. */
beryl_status lower_refuse(const lowering *l, const graph_node *node, const char *what, beryl_error *error);

/* One row of a table of lower_node.c: how an op is lowered. */
typedef beryl_status lower_fn(lowering *l, const graph_node *node, beryl_error *error);
lower_fn lower_gather_rows, lower_copy, lower_pointwise, lower_matmul_tiled, lower_rms_norm, lower_softmax, lower_topk, lower_weighted_sum, lower_matmul,
    lower_matmul_id, lower_rope, lower_kv_write, lower_attention, lower_argmax, lower_sample, lower_set_rows, lower_fused, lower_fused_matvec,
    lower_fused_attention, lower_fused_router, lower_fused_experts;

#endif
