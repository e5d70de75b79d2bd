/* towers.h - the towers of pictures and sound of an engine, for media.c. */
#ifndef ENGINE_TOWERS_H
#define ENGINE_TOWERS_H

#include "engine/engine.h"

typedef struct engine_tower_plan {
    gemma4_vision_graph sees; /* one of these */
    gemma4_audio_graph listens;
    graph *g;
    graph_exec *exec;
    graph_value soft;
    uint32_t bound; /* soft tokens of a picture, frames of a clip */
} engine_tower_plan;

typedef struct engine_tower {
    enum { TOWER_NONE, TOWER_ADDED, TOWER_PLACED, TOWER_LOADED, TOWER_READY } stage;
    bool there;       /* the file has it */
    uint32_t users;   /* tasks that encode with it */
    base_arena arena; /* of what the file says of it */
    graph_store store;
    engine_tower_plan plan;
} engine_tower;

struct engine_towers {
    base_arena arena;
    beryl_source *sources;
    uint32_t n_source;
    gemma4_vision vision;
    gemma4_audio audio;
    engine_tower tower[2]; /* pictures, sound */
};

/* Reads what the files say of towers; no weights. OK at once where that is done. */
beryl_status engine_towers_open(beryl_engine *e, beryl_error *error);
/* The same; UNSUPPORTED where the files have no such tower. */
beryl_status engine_tower_find(beryl_engine *e, beryl_media_kind kind, beryl_error *error);
/* Of an engine whose towers are open. */
engine_tower *engine_tower_of(const beryl_engine *e, beryl_media_kind kind);
/* Takes the memory of its weights, if it has none. */
beryl_status engine_tower_place(beryl_engine *e, beryl_media_kind kind, beryl_error *error);
/* What plans are made for, where a picture is not larger. */
uint32_t engine_tower_usual(const beryl_engine *e, beryl_media_kind kind);
/* Its weights, a little at a time: EVENT: there is more; OK: they are there, or their memory is not
 * yet. */
beryl_status engine_tower_load(engine_tower *tower, beryl_error *error);
/* A plan for so much of a tower that has its memory; closed by the caller, also on failure. */
beryl_status engine_tower_plan_open(beryl_engine *e, beryl_media_kind kind, uint32_t bound,
                                    const graph_exec_options *how, engine_tower_plan *plan,
                                    beryl_error *error);
void engine_tower_plan_close(engine_tower_plan *plan);
/* The next step on the way to a tower with a plan for so much: OK: it runs. For tasks that are
 * among its users. */
beryl_status engine_tower_step(beryl_task *task, beryl_media_kind kind, uint32_t bound);

#endif
