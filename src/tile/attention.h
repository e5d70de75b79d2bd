/* attention.h - what kernels of attention are asked for, be it a plain node
 * or a joined decode step, and what they share: caches as words, the keys of a row, the store of
 * its own key and value. For tile_attention*.c alone. */
#ifndef TILE_ATTENTION_H
#define TILE_ATTENTION_H

#include "tile/fused.h"
#include "tile/kernel.h"
#include "tile/whole.h"

#define ATTENTION_LEAST (-3e38f)    /* below every score */
#define ATTENTION_NO_KEYS (-1e38f)  /* the largest score of no keys */
#define ATTENTION_MASKED (-3.3e38f) /* a score whose weight is 0 even beside these */

enum {
    ATTENTION_EIGHT = 8,           /* elements of a cache that are read at once; */
    ATTENTION_RAW_MAX = 8,         /* words of them */
    ATTENTION_EIGHTS_MAX = 4,      /* of a head, a lane: registers */
    ATTENTION_LINE_EIGHTS_MAX = 8, /* of a line, a lane */
    ATTENTION_BLOCK = 64           /* columns of a block of lines that units multiply */
};

enum { ATTENTION_PARTIAL, ATTENTION_STATS, ATTENTION_WORK }; /* scratch memory of a node */

typedef struct attention_task {
    graph_value q, k_cache, v_cache, slot, pos, out;
    graph_value first; /* keys from here on; 0: of the window */
    /* k and v are values of the run, so no ring: they have this many rows in a run */
    bool plain;
    lower_count held;
    uint32_t k_offset, v_offset;       /* elements */
    uint32_t k_stride[2], v_stride[2]; /* elements from row to row, from head to head */
    bool dense;                        /* both caches lie without gaps */
    bool fast;                         /* halves will do */
    /* q comes before norm and rotation: w_q, angles, eps; so does k of an owner */
    bool raw;
    graph_value w_q, w_k, angles;
    graph_value k, v;           /* owner's: not 0; v == k: values are the raw keys */
    graph_value partial, stats; /* 0: scratch of the node, where there are pieces */
    float eps, scale;
    uint32_t n, n_head, n_kv, d, n_slot, n_row, window; /* n: bound */
    uint32_t keys;                                      /* that a row may see */
    bool whole;                                         /* mostly a whole window */
    uint32_t n_split;
    lower_count rows;
    base_type cache;
    uint32_t q_offset, q_stride[2]; /* of rows and heads */
} attention_task;

/* OP_ATTENTION, and what its backward pass has of it; n_split 1 */
void attention_task_of(const graph *g, const graph_node *node, attention_task *a);
void attention_task_of_fused(const graph *g, const fused_attention *f, attention_task *a);

/* ---- caches ---------------------------------------------------------------------------------- */

typedef struct attention_cache { /* [slot, row, kv head, d] */
    tile_kernel *k;
    base_type type;
    ir_memory at;                /* f32, halves or words */
    bool halves;                 /* f16 as such: attention_cache_read alone */
    uint32_t plane;              /* Q8_0: words before the scales */
    ir_id offset;                /* elements before the first; IR_NO_ID: none */
    ir_id start;                 /* of `at`, where both caches are one binding; IR_NO_ID: 0 */
    uint32_t raw;                /* words of an eight */
    uint32_t stride[2], n_kv, d; /* elements from row to row, from head to head; of a dense cache */
} attention_cache;

bool attention_cache_known(const attention_task *a);
/* Do all lines begin at multiples of so many elements, of queries and of caches? */
bool attention_reads(const attention_task *a, uint32_t q_wide, uint32_t wide);
/* Both; as one binding where the device has too few for two and they lie in one buffer. */
void attention_caches_bind(attention_cache *keys, attention_cache *values, tile_kernel *k,
                           const attention_task *a, bool halves);
/* Storage buffers of a joined step on this device. */
uint32_t attention_bindings(const lowering *l, const attention_task *a);
/* The same where each cache has its own. */
uint32_t attention_bindings_most(const attention_task *a);
/* Where key `place` of a kv head begins, `base` rows before the slot's: in units of so many
 * elements. */
ir_id attention_cache_at(const attention_cache *c, ir_id base, ir_id place, ir_id kv,
                         uint32_t unit);
/* An eight by its number, f32x8, by way of registers: as it lies raw words from place * c->raw on,
 * to be kept until they are numbers. */
void attention_cache_fetch(const attention_cache *c, ir_id eight, ir_memory to, uint32_t place);
ir_id attention_cache_fetched(const attention_cache *c, ir_memory from, uint32_t place);
/* Where an element lies in what is bound. */
ir_id attention_cache_bound(const attention_cache *c, ir_id element);
/* `width` elements as f32; in one block. */
ir_id attention_cache_read(const attention_cache *c, ir_id element, uint32_t width);
/* Elements that a lane stores at a time: `wanted`, as far as the cache's type has it so. */
uint32_t attention_cache_unit(const attention_cache *c, uint32_t wanted);
/* That many: f32 in memory `line` at `from` to the cache's element `to`. */
void attention_cache_store(const attention_cache *c, ir_memory line, ir_id from, ir_id to,
                           uint32_t unit);
/* Of Q8_0, by eight neighbours of a subgroup together, an eight each of two blocks, f32x8: its
 * words, and the scales of both, as the first of them has them; stored to element `to`. */
void attention_cache_round(ir_builder *b, ir_id x, ir_id out[2]);
void attention_cache_put(const attention_cache *c, ir_id to, const ir_id x[2]);

/* Keys and values of the run as halves, which a dispatch before makes; elements of the keys. */
uint64_t attention_halves(const attention_task *a);
beryl_status attention_halve(lowering *l, const attention_task *a);
void attention_halves_bind(attention_cache *keys, attention_cache *values, tile_kernel *k,
                           const attention_task *a);

/* ---- the keys of a row ----------------------------------------------------------------------- */

/* Of a position and a slot that may be any numbers: where one is none, no keys. */
typedef struct attention_keys {
    ir_id last, first, end; /* position; cached keys first .. end - 1, at most a->keys */
    ir_id is;               /* position and slot are some */
    ir_id base;             /* rows of the cache before the slot's, if it is one */
} attention_keys;

typedef struct attention_places {
    ir_memory slot, pos, first;
    ir_id slot_offset, pos_offset, first_offset, held, most; /* most: keys that are read */
} attention_places;
void attention_places_bind(attention_places *p, tile_kernel *k, const attention_task *a);
void attention_keys_of(const attention_places *p, ir_builder *b, const attention_task *a, ir_id row,
                       attention_keys *keys);
/* 1 / total; without keys a number, so that their sum of 0 stays 0. */
ir_id attention_inverse(ir_builder *b, ir_id total);

/* Where a workgroup's sums go: bound as "out", and "stats" where there are pieces. */
typedef struct attention_result {
    ir_memory out, stats;
} attention_result;
void attention_result_bind(attention_result *r, tile_kernel *k, const attention_task *a);

beryl_status attention_merge(lowering *l, const attention_task *a);

/* ---- lines ----------------------------------------------------------------------------------- */

/* Query heads, then the row's own key and value, in workgroup memory; `lanes` neighbours, a
 * group, make one. A workgroup is a piece of the keys, some heads of one kv head, a row; the
 * first piece has the row's own key. */
typedef struct attention_lines {
    tile_kernel *k;
    const attention_task *a;
    /* eights: of a line, a lane; sums: that lanes join at once; all set before */
    uint32_t lanes, groups, heads, eights, sums;
    /* lines of room between the heads and the own key, set before */
    uint32_t apart;
    /* a power of two; 0: no: eight i of query head h lies in line h ^ i % turned; set before */
    uint32_t turned;
    bool subgroups; /* lanes of one subgroup */
    /* the own key is stored by eights at least: in narrower pieces a cache is read word by word */
    bool by_eights;
    /* f32 [heads + apart + 2, d], set before they are made */
    ir_memory memory;
    attention_cache keys, values;
    attention_places places;
    attention_result result;
    attention_keys of; /* of the row */
    ir_memory q, key, value, norms, angles, tree, lines;
    ir_id q_offset, angles_offset, w_q, w_k, scale, eps;
    /* member: the group; fresh: this workgroup has the row's own key */
    ir_id local, lane, member, row, piece, first_head, kv, fresh;
    uint32_t rounds;
    /* of each eight of the first round's lines: norm's weights and cosine, sine for its two fours,
     * asked for with the lines */
    ir_id factors[ATTENTION_LINE_EIGHTS_MAX][4];
} attention_lines;

/* All that the kernel reads and writes; halves: as of attention_caches_bind. */
void attention_lines_bind(attention_lines *x, bool halves);
void attention_lines_declare(attention_lines *x);
/* The keys that the row sees; lines may be asked for before. */
void attention_lines_see(attention_lines *x);
void attention_lines_load(attention_lines *x);
/* Norms, rotations, scale. */
void attention_lines_make(attention_lines *x);
/* The first workgroup of a kv head stores the row's own key and value, if it has one (fresh).
 * After a barrier. */
void attention_lines_store_own(attention_lines *x);
/* Where element 4 * four of a line lies: first fours that begin an eight, then those that end
 * one, so that neighbours that read their eights read neighbours. */
ir_id attention_line_place(attention_lines *x, uint32_t line, ir_id four);
/* Sum over the lanes of a group; every lane of the workgroup calls it. */
ir_id attention_lanes_sum(attention_lines *x, ir_id value);
/* The eight whose first four lies at `at`: f32x8. */
ir_id attention_line_eight(const attention_lines *x, ir_id at);
/* Of the result a four of a head, not yet divided by `total`. */
void attention_lines_result(const attention_lines *x, ir_id head, ir_id four, ir_id sum, ir_id most,
                            ir_id total);
/* Of a piece without keys, that it is one. */
void attention_lines_nothing(const attention_lines *x);

/* Where an element of a line lies among so many in blocks, [d / ATTENTION_BLOCK, lines,
 * ATTENTION_BLOCK], as fragment_multiply wants factors. */
ir_id attention_block_at(ir_builder *b, ir_id line, ir_id element, uint32_t lines);

/* ---- many rows ------------------------------------------------------------------------------- */

/* A tile of rows = (query, head of the few that share a kv head), in turns: in each, queries of
 * one slot whose keys a ring holds. */
typedef struct attention_rows {
    tile_kernel *k;
    const attention_task *a;
    /* set before: rows of a lane, queries of a tile, heads of each; are there rows without a
     * query?; the lane's rows begin at lane_rows * each, or lie `apart` (not 0) from each other
     * from lane_rows on */
    uint32_t each, queries, group, apart;
    bool spare, looped; /* looped: rows of a lane are many, and not written out */
    bool joint;         /* lanes share the look at the queries: where these are many */
    ir_id lane_rows;
    attention_places places;
    ir_memory low, high; /* registers [each]: the keys that each of the lane's rows sees */
    /* the same in the workgroup: keys of the turn's rows; those that all of them see */
    ir_memory from, to, inner_low, inner_high, open, end;
    ir_memory found; /* of the workgroup, where lanes share the look: u32 [FOUND] */
    ir_id first_query, n_query, first_head, kv, slot;
} attention_rows;

void attention_rows_bind(attention_rows *x, tile_kernel *k, const attention_task *a);
void attention_rows_begin(attention_rows *x); /* a turn: a loop, */
void attention_rows_end(attention_rows *x);   /* which this ends */
/* Do all rows see the `n` keys from `first` on? */
ir_id attention_rows_all_see(const attention_rows *x, ir_id first, uint32_t n);
/* Where key `key`, the turn's last at most, begins in a cache. */
ir_id attention_rows_key(attention_rows *x, const attention_cache *cache, ir_id key);

/* Would it round keys and values that are of the run to halves, and does it read such? */
bool tile_attention_halves(const graph *g, const graph_store *store, const graph_node *node);

/* ---- a joined decode step -------------------------------------------------------------------- */

bool tile_attention_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                         const fused_attention *f);
uint32_t tile_attention_splits(const graph *g, const graph_store *store, const fused_attention *f);
lower_fn tile_fused_attention;

/* ---- forms ----------------------------------------------------------------------------------- */

/* Lanes share keys; d a multiple of 8. splits: 0: it does not fit. */
/* pieces so few that the next product merges them */
bool attention_lanes_near(const device_caps *caps, const attention_task *a);
uint32_t attention_lanes_splits(const device_caps *caps, const attention_task *a);
beryl_status attention_lanes(lowering *l, const attention_task *a);
/* Many rows; d a multiple of 8. n_split 1. */
bool attention_tile_fits(const device_caps *caps, const attention_task *a);
beryl_status attention_tile(lowering *l, const attention_task *a);

/* The same where subgroups are a thread's vectors; short heads. */
bool attention_shuffle_fits(const device_caps *caps, const attention_task *a);
beryl_status attention_shuffle(lowering *l, const attention_task *a);

/* The same on processors, whose vectors have rows as lanes. */
bool attention_block_fits(const device_caps *caps, const attention_task *a);
beryl_status attention_block(lowering *l, const attention_task *a);

/* The same on matrix units, where halves will do. */
bool attention_matrix_fits(const device_caps *caps, const attention_task *a);
beryl_status attention_matrix(lowering *l, const attention_task *a);

/* The same for many keys on GPUs with subgroups: heads share what is read of the caches. */
uint32_t attention_far_splits(const device_caps *caps, const attention_task *a);
beryl_status attention_far(lowering *l, const attention_task *a);

/* The same with matrix units, F16 or Q8_0 caches; pays where keys are many. n_split above 1. */
uint32_t attention_units_splits(const device_caps *caps, const attention_task *a);
beryl_status attention_units(lowering *l, const attention_task *a);

/* A lane does it alone: any d. */
bool attention_serial_fits(const attention_task *a);
/* Lanes of a workgroup are heads and pieces, on devices that make vectors of them. */
bool attention_serial_items(const device_caps *caps, const attention_task *a);
uint32_t attention_serial_splits(const device_caps *caps, const attention_task *a);
beryl_status attention_serial(lowering *l, const attention_task *a);

#endif
