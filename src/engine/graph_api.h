/* graph_api.h - graphs of users: what the files share that implement beryl_graph.h. */
#ifndef ENGINE_GRAPH_API_H
#define ENGINE_GRAPH_API_H

#include "beryl_graph.h"
#include "graph/build.h"
#include "plan/exec.h"

enum { OUTPUT_MAX = 64, QUANTISED_RANK_MAX = 4 };

typedef enum graph_stage {
    STAGE_BUILD,
    STAGE_UPLOAD,
    STAGE_PROGRAMS,
    STAGE_READY,
    STAGE_FAILED
} graph_stage;

typedef struct api_constant {
    graph_value input;
    const void *data; /* [size], in the arena */
    size_t size;
} api_constant;

struct beryl_graph {
    base_heap heap;
    base_arena arena;
    beryl_log log;
    beryl_precision precision;
    uint64_t memory;
    device *device; /* NULL: reference */
    graph *g;
    graph_store store;
    base_vec(beryl_source) sources;   /* one a weight */
    base_vec(api_constant) constants; /* those that are inputs */
    graph_exec *exec;
    /* as the caller knows them, and what is read back: of a view a copy */
    graph_value outputs[OUTPUT_MAX], fetched[OUTPUT_MAX];
    uint32_t n_output;
    uint64_t resident; /* outputs, a bit each, that are not read back */
    graph_stage stage;
    device_ticket ticket;                   /* of the last run; 0: none */
    uint32_t extents[GRAPH_EXTENT_MAX + 1]; /* of the last run, from [1] */
    bool explained;                         /* the plan keeps what its steps are made from */
    bool evaluated;                         /* the last run is that of a beryl_graph_eval */
    device_ticket state_ticket;             /* of a beryl_graph_state_get; 0: none */
    size_t state_got;                       /* bytes of it */
    beryl_error failure;                    /* of compiling */
    const struct onnx_ports *ports;         /* of a model that was read; in the arena */
};

enum {
#define X(name) +1
    TYPE_KNOWN = 0 BERYL_TYPE_LIST(X)
#undef X
};
extern const base_type graph_api_types[TYPE_KNOWN]; /* of the types that callers know */

/* Lays out the store and makes the plan: the first step of compiling. */
beryl_status graph_api_plan(beryl_graph *g, beryl_error *error);
/* Nothing has failed, and it is not compiled. */
bool graph_api_may_build(const beryl_graph *g);
/* Of a state, as its type and shape say. */
uint64_t graph_api_state_bytes(const beryl_graph *g, beryl_value state);
/* The graph's error, "WHAT: NAME", unless there is one; gives 0. */
beryl_value graph_api_refuse(beryl_graph *g, beryl_status code, const char *what, const char *name);
/* The caller's dimensions as the graph has them. false: refused. */
bool graph_api_dims(beryl_graph *g, const char *name, uint32_t rank, const beryl_dim *from,
                    graph_dim *to);

#endif
