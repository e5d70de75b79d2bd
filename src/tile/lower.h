/* lower.h - from a graph operation to steps of a plan. Tile programs choose a kernel by (op, types,
 * shapes, capabilities), bind its storage by name and give parameters and grid as constants or
 * extents. */
#ifndef TILE_LOWER_H
#define TILE_LOWER_H

#include "graph/graph.h"
#include "tile/form.h"
#include "graph/store.h"
#include "device/device.h"

/* What a step is made from, for people: kept where a plan is to be explained (plan/exec.h):
 * IR before and after the passes, and the device's text. The texts are the plan's; NULL where
 * there is none. */
typedef struct lower_texts {
    const char *before, *after, *code;
    device_language language;
    device_program program;
} lower_texts;

typedef struct lowering { /* of one plan */
    const graph *g;
    graph_store *store;
    device *device;
    const device_caps *caps;
    lower_settings settings;
    device_language language; /* of its kernels */
    /* what is recorded; NULL where it is only asked what would be done */
    struct plan_record *record;
    base_arena *arena;             /* of the plan: texts and the like */
    lower_search *search;          /* of schedules and choices; NULL: none (plan/exec.h) */
    struct lower_choices *choices; /* of the node under way (tile/kernel.h); NULL: the rules' */
    uint64_t *draws;               /* tests: choices are drawn from it; NULL: they are not */
    lower_texts *texts;            /* of the step under way; NULL: nobody asks */
    const graph_node *node;        /* under way */
    beryl_error *error;            /* where what fails is told; NULL: nowhere */
} lowering;

/* One that is only asked what would be done; settings NULL: the usual. */
lowering lower_asked(const graph *g, const graph_store *store, const lower_settings *settings);
/* What the settings say about a product with this weight, NULL: nothing. */
const lower_form *lower_form_of(const lowering *l, graph_value weight);
/* The form that was taken in the end, for who tunes: after lower_form_of, before the product's
 * step ends. */
struct matvec_choice;
void lower_form_chosen(const lowering *l, const struct matvec_choice *choice);

/* The stored tensor behind a value (through views), NULL: none. */
const store_tensor *lower_stored(const lowering *l, graph_value v);
/* The weight whose rows are those of a matrix or of matrices; NULL: none, as for a state, or for
 * a view with rows of another length. */
const store_tensor *lower_weight(const lowering *l, graph_value v);

/* A count of a run: factor * value of `extent` (0: just factor). */
typedef struct lower_count {
    uint64_t factor;
    uint8_t extent;
} lower_count;
lower_count lower_count_of(graph_dim dim);
lower_count lower_count_times(lower_count a, uint64_t factor);
/* The rows of a tensor: product of all dimensions but the last (at most one of them an extent,
 * else UNSUPPORTED at step end). */
lower_count lower_rows(const graph_tensor *t);

enum { LOWER_PARAM_MAX = 64, LOWER_NAME_MAX = 40 };

typedef struct lower_binding {
    char name[LOWER_NAME_MAX];
    device_access access;
} lower_binding;
/* at byte 4 * index */
typedef struct lower_param {
    char name[LOWER_NAME_MAX];
    bool is_float;
} lower_param;

/* A program's text with what a plan has to know of it. */
typedef struct lower_kernel {
    char *text; /* NULL: `hash` is that of a known program */
    size_t size;
    uint64_t hash;
    uint32_t n_binding, n_param, workgroup[3], launch_bytes; /* as device_program_desc has them */
    lower_binding bindings[DEVICE_BINDING_MAX];
    lower_param params[LOWER_PARAM_MAX];
    bool uses_f16, uses_subgroups, uses_dot;
} lower_kernel;

/* One dispatch of a kernel in the lowering's language, whose function is `entry` (NULL: "main").
 * Errors stick until lower_step_end gives the first. */
typedef struct lower_step lower_step;
lower_step *lower_step_begin(lowering *l, const char *name, const char *entry,
                             const lower_kernel *kernel);
bool lower_program_known(const lowering *l, uint64_t hash);
/* the tensor's whole range (a view: its base's) */
void lower_bind(lower_step *s, const char *name, graph_value v);
/* of a stored weight */
void lower_bind_shard(lower_step *s, const char *name, graph_value v, uint32_t shard);
/* Several stored weights, or states, through one binding, where they lie in one buffer within the
 * device's largest binding: word[i]: start of weight i (its shard 0), in 4-byte units from the
 * start of the binding. */
bool lower_weights_fit(const lowering *l, const graph_value *weights, uint32_t n);
bool lower_states_fit(const lowering *l, const graph_value *states, uint32_t n);
void lower_bind_weights(lower_step *s, const char *name, const graph_value *weights, uint32_t n,
                        uint32_t *word);
/* Leaves the step that ended last out where one shortly before it is the same and nothing since has
 * changed what they read or write: the scratch that it writes is that one's from now on. */
void lower_step_share(lowering *l);
/* Scratch memory of this step's node: same key in the same node gives the same memory. bytes: at
 * the bounds. */
void lower_bind_scratch(lower_step *s, const char *name, uint32_t key, uint64_t bytes);
void lower_f32(lower_step *s, const char *name, float value);
void lower_count_param(lower_step *s, const char *name, lower_count count);
/* Groups: ceil(count / per) in x (wrapped into y where it is more than the device allows:
 * kernels use the linear index workgroup_id.x + workgroup_id.y * num_workgroups.x and check it),
 * y and z as given. */
void lower_groups_3d(lower_step *s, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y,
                     lower_count z, uint32_t per_z);
/* Its groups share loops: fewer than that, as many as the device takes, do all the work too. */
void lower_groups_share(lower_step *s);
/* It reads weights alone and writes scratch, which is kept from run to run: only the first run
 * after an upload has the step. Its groups are constants. */
void lower_once(lower_step *s);
beryl_status lower_step_end(lower_step *s);

/* Weight and state bytes that this node reads in a run of one token, for the report (added up
 * over the plan). */
void lower_bytes(lowering *l, uint64_t bytes);

/* UNSUPPORTED: "OP of TYPES on DEVICE: what", with each type that the node reads. */
beryl_status lower_refuse(const lowering *l, const graph_node *node, const char *what);

/* How an operation is lowered (tile_lowering in kernel.h). */
typedef beryl_status lower_fn(lowering *l, const graph_node *node);

#endif
