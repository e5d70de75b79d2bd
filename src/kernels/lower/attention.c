/* attention.c - lowering of caches and attention, alone and joined with what comes before
 * it in a decode step.
 *
 * Forms of attention. Many rows: tiles of queries against tiles of keys (attention_tile). Few
 * rows: the keys of a row are split over workgroups and the partial sums merged
 * (attention_merge): on devices with subgroups attention_lanes, and attention_far where many
 * keys are shared by many heads; attention_decode on others. Software devices: one thread a head
 * and a piece of its keys (attention_serial), since barriers are what costs there. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/request.h"

#include <string.h>

enum {
    DECODE_ROWS_MAX = 16,
    DECODE_THREADS = 256,
    DECODE_HEADS_MAX = 8,
    DECODE_PIECE_KEYS = 64, /* keys a piece, at least; */
    /* of a sliding window that is merged in a dispatch of its own */
    DECODE_WINDOW_KEYS = 32,
    LANES_MAX = 32,
    LANES_FOURS_MAX = 8, /* of a head, a lane: registers */
    LANES_GROUPS_NEAR = 8,
    LANES_GROUPS_FAR = 4,
    LANES_HEADS_NEAR = 4,
    LANES_HEADS_FAR = 2,
    LANES_PIECE_MIN = 32,
    /* pieces that the next product merges, since it asks for four at once, */
    LANES_MERGED_MIN = 4,
    /* of partial sums, where the next product is to merge them: all its workgroups read them;
     * twice as many of whole windows */
    LANES_MERGED_BYTES = 32 << 10,
    /* of halves of keys and values, a piece: more takes longer than a merge of its own */
    LANES_NEAR_BYTES = 256 << 10,
    LANES_PIECES_MAX = 128,
    LANES_JOIN_BYTES = 24 << 10,
    FAR_KEYS = 512, /* attention_far: of a row, more than these; */
    FAR_HEADS = 4,  /* of its text */
    /* two workgroups a unit; with 512 a thread has too few registers */
    FAR_THREADS = 256,
    FAR_TILE = 256,
    FAR_TILE_MIN = 32,
    FAR_PIECE_MIN = 32,
    FAR_PIECES_MAX = 192, /* that a merge asks for at once: EACH_MAX of a thread */
    SERIAL_KEYS_MIN = 32,
    SERIAL_THREADS_WANTED = 32,
    SERIAL_SCRATCH = 32 << 20,
    MERGE_THREADS = 256,
    EACH_MAX = 12,
    TILE_THREADS = 256,
    HEAD_FOURS_MAX = 256,
};

typedef struct shapes { /* of an attention node; D = 4 * d4 */
    /* n: bound; keys: most that a row may see */
    uint32_t n, n_head, n_kv, d4, n_row, n_slot, window, keys;
    bool whole; /* mostly a whole window */
    base_type cache;
    const graph_tensor *q;
} shapes;

static uint32_t at_least(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t at_most(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t round_up(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

/* The largest divisor of n that is at most `most`. */
static uint32_t divisor_of(uint32_t n, uint32_t most) {
    uint32_t d = at_most(n, most);
    while (n % d) d--;
    return d;
}

/* ---- kv_write -------------------------------------------------------------------------------- */

beryl_status lower_kv_write(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *cache = graph_tensor_at(l->g, node->in[0]),
                       *x = graph_tensor_at(l->g, node->in[1]);
    const bool blocks = cache->type == TYPE_Q8_0;
    const uint32_t per = blocks ? 32 : 4, d = x->dim[2].size;
    if (d % per || x->dim[1].extent || x->dim[2].extent || (x->stride[2] != 1 && d != 1))
        return lower_refuse(l, node, "heads of this shape", error);
    lower_request r = {.kernel.file = blocks ? "kv_write_q8_0" : "kv_write"};
    if (cache->type == TYPE_F16) lower_request_part(&r, "cache_store", "cache_store_f16");
    if (cache->type != TYPE_F32) lower_request_part(&r, "half_bits", "half_bits");
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", node->in[1]);
    lower_bind(s, "slot", node->in[2]);
    lower_bind(s, "pos", node->in[3]);
    lower_bind(s, "cache", node->in[0]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "h", x->dim[1].size);
    lower_u32(s, blocks ? "d32" : "d4", d / per);
    lower_u32(s, "n_slot", cache->dim[0].size);
    lower_u32(s, "n_row", cache->dim[1].size);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "x1", x->stride[1]);
    lower_u32(s, "slot_offset", graph_tensor_at(l->g, node->in[2])->offset);
    lower_u32(s, "pos_offset", graph_tensor_at(l->g, node->in[3])->offset);
    lower_groups(
        s, lower_count_times(lower_count_of(x->dim[0]), (uint64_t)x->dim[1].size * (d / per)), 64);
    return lower_step_end(s, error);
}

/* ---- attention: what the forms share --------------------------------------------------------- */

static beryl_status shapes_of(const lowering *l, const graph_node *node, shapes *a,
                              beryl_error *error) {
    const graph_tensor *q = graph_tensor_at(l->g, node->in[0]),
                       *k = graph_tensor_at(l->g, node->in[1]);
    *a = (shapes){.n = q->dim[0].size,
                  .n_head = q->dim[1].size,
                  .n_kv = k->dim[2].size,
                  .d4 = q->dim[2].size / 4,
                  .n_slot = k->dim[0].size,
                  .n_row = k->dim[1].size,
                  .window = node->attr.attention.window,
                  .cache = k->type,
                  .q = q};
    a->keys = a->window ? at_most(a->window, a->n_row) : a->n_row;
    if (node->n_in > 5) return lower_refuse(l, node, "a range of keys for each row", error);
    if (graph_tensor_at(l->g, graph_base_of(l->g, node->in[1]))->role != ROLE_STORED || k->offset ||
        graph_tensor_at(l->g, node->in[2])->offset)
        return lower_refuse(l, node, "keys and values that are no caches", error);
    if (q->dim[2].size % 4 || a->d4 > HEAD_FOURS_MAX)
        return lower_refuse(l, node, "a head size that is no multiple of 4, or above 1024", error);
    if (q->dim[1].extent || q->dim[2].extent || q->stride[2] != 1 || q->offset % 4 ||
        q->stride[0] % 4 || q->stride[1] % 4)
        return lower_refuse(l, node, "queries with gaps that are no multiple of 4", error);
    return BERYL_OK;
}

static void request_cache(lower_request *r, base_type type, bool eights) {
    if (type == TYPE_F16)
        lower_request_part(r, "cache", eights ? "cache_eight_f16" : "cache_read_f16");
    if (type == TYPE_Q8_0)
        lower_request_part(r, "cache", eights ? "cache_eight_q8_0" : "cache_read_q8_0");
}

static void bind_attention(lower_step *s, const lowering *l, const graph_node *node,
                           const shapes *a) {
    lower_bind(s, "q", node->in[0]);
    lower_bind(s, "k_cache", node->in[1]);
    lower_bind(s, "v_cache", node->in[2]);
    lower_bind(s, "slot", node->in[3]);
    lower_bind(s, "pos", node->in[4]);
    if (a->cache == TYPE_Q8_0) lower_u32(s, "cache_plane", a->n_slot * a->n_row * a->n_kv * a->d4);
    lower_u32(s, "n_head", a->n_head);
    lower_u32(s, "n_kv", a->n_kv);
    lower_u32(s, "n_slot", a->n_slot);
    lower_u32(s, "n_row", a->n_row);
    lower_u32(s, "window", a->window);
    lower_f32(s, "scale", node->attr.attention.scale);
    lower_u32(s, "q_offset", a->q->offset / 4);
    lower_u32(s, "q0", a->q->stride[0] / 4);
    lower_u32(s, "q1", a->q->stride[1] / 4);
    lower_u32(s, "slot_offset", graph_tensor_at(l->g, node->in[3])->offset);
    lower_u32(s, "pos_offset", graph_tensor_at(l->g, node->in[4])->offset);
}

enum { SCRATCH_PARTIAL, SCRATCH_STATS, SCRATCH_WORK };

static void bind_output(lower_step *s, const graph_node *node, const shapes *a, uint32_t n_split,
                        uint32_t rows) {
    const uint64_t pieces = (uint64_t)rows * a->n_head * n_split;
    if (n_split > 1) {
        lower_bind_scratch(s, "out", SCRATCH_PARTIAL, pieces * a->d4 * 16);
    } else {
        lower_bind(s, "out", node->out[0]);
    }
    lower_bind_scratch(s, "stats", SCRATCH_STATS, pieces * 8);
}

/* Rows [first, first + rows) of a run: at most the bound, at least what is there (kernels
 * check). joined: where the pieces are tensors of the graph; NULL: scratch of the node. */
static beryl_status merge(lowering *l, const graph_node *node, const shapes *a,
                          const fused_attention *joined, uint32_t n_split, uint32_t first,
                          uint32_t rows, beryl_error *error) {
    const bool serial = l->caps->kind == DEVICE_SOFTWARE;
    uint32_t columns = 1;
    while (columns < 16 && columns < a->d4) columns *= 2;
    if (serial) columns = 8;
    lower_request r = {.kernel.file = "attention_merge"};
    lower_request_number(&r, "D4", a->d4);
    lower_request_number(&r, "COLUMNS", columns);
    const uint32_t parts = serial ? 1 : MERGE_THREADS / columns;
    lower_request_number(&r, "PARTS", parts);
    lower_request_number(&r, "EACH",
                         serial ? 1 : at_least(4, at_most(EACH_MAX, round_up(n_split, parts))));
    lower_request_number(&r, "THREADS", serial ? columns : MERGE_THREADS);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    const uint64_t pieces = (uint64_t)rows * a->n_head * n_split;
    if (joined) {
        lower_bind(s, "partial", joined->partial);
        lower_bind(s, "stats", joined->stats);
        lower_bind(s, "out", joined->out);
    } else {
        lower_bind_scratch(s, "partial", SCRATCH_PARTIAL, pieces * a->d4 * 16);
        lower_bind_scratch(s, "stats", SCRATCH_STATS, pieces * 8);
        lower_bind(s, "out", node->out[0]);
    }
    lower_count_param(s, "n", lower_count_of(a->q->dim[0]));
    lower_u32(s, "first_row", first);
    lower_u32(s, "rows", rows);
    lower_u32(s, "n_head", a->n_head);
    lower_u32(s, "n_split", n_split);
    const uint64_t groups = (uint64_t)a->n_head * round_up(a->d4, columns);
    lower_groups(s,
                 rows == a->n ? lower_count_times(lower_count_of(a->q->dim[0]), groups)
                              : (lower_count){groups * rows, 0},
                 1);
    return lower_step_end(s, error);
}

/* ---- software devices ------------------------------------------------------------------------ */

/* Pieces of the keys: as many as the trip count of a thread asks for, more where there are few
 * threads. */
static uint32_t serial_split_of(const device_caps *caps, const shapes *a) {
    /* of a thread, all together */
    const uint32_t loops = caps->loop_max ? caps->loop_max / 4 * 3 : 48000;
    const uint32_t keys_each =
        4 * at_least(1, (loops - at_most(loops, 6 * a->d4)) / (2 * a->d4 + 1));
    const uint32_t wanted = round_up(SERIAL_THREADS_WANTED, a->n * a->n_head);
    return at_least(round_up(a->keys, keys_each),
                    at_most(wanted, round_up(a->keys, SERIAL_KEYS_MIN)));
}

static beryl_status attention_serial(lowering *l, const graph_node *node, const shapes *a,
                                     beryl_error *error) {
    const uint32_t n_split = serial_split_of(l->caps, a);
    const uint64_t row_bytes = (uint64_t)a->n_head * n_split * a->d4 * 16;
    const uint32_t rows =
        n_split == 1 ? a->n
                     : (uint32_t)(row_bytes * a->n <= SERIAL_SCRATCH
                                      ? a->n
                                      : at_least(1, (uint32_t)(SERIAL_SCRATCH / row_bytes)));
    beryl_status status = BERYL_OK;
    for (uint32_t first = 0; status == BERYL_OK && first < a->n; first += rows) {
        lower_request r = {.kernel.file = "attention_serial"};
        lower_request_number(&r, "D4", a->d4);
        lower_request_flag(&r, "SPLIT", n_split > 1);
        request_cache(&r, a->cache, false);
        lower_step *s = lower_step_begin(l, node, &r.kernel);
        bind_attention(s, l, node, a);
        bind_output(s, node, a, n_split, rows);
        lower_count_param(s, "n", lower_count_of(a->q->dim[0]));
        lower_u32(s, "first_row", first);
        lower_u32(s, "rows", rows);
        lower_u32(s, "n_split", n_split);
        const uint64_t threads = (uint64_t)a->n_head * n_split;
        lower_groups(s,
                     rows == a->n ? lower_count_times(lower_count_of(a->q->dim[0]), threads)
                                  : (lower_count){threads * rows, 0},
                     8);
        status = lower_step_end(s, error);
        if (status == BERYL_OK && n_split > 1)
            status = merge(l, node, a, NULL, n_split, first, rows, error);
    }
    return status;
}

/* ---- few rows -------------------------------------------------------------------------------- */

typedef struct decode_form {
    uint32_t heads, keys_each, n_split;
    uint32_t lanes, groups, join; /* of attention_lanes and attention_far; 0: attention_decode */
    uint32_t line_lanes, ahead, tile; /* of attention_far; 0: not that */
    bool near;                        /* of attention_lanes */
    bool lanes_shuffle;
} decode_form;

static uint32_t units_of(const device_caps *caps) {
    return caps->compute_units ? caps->compute_units : caps->kind == DEVICE_DISCRETE ? 128 : 16;
}

static uint32_t lanes_bytes(uint32_t d4, const decode_form *f) {
    return at_least((f->heads + 2) * d4, f->groups * f->join * d4) * 16 + f->groups * f->heads * 8;
}

static uint32_t lanes_piece(const decode_form *f) { /* keys a piece, at least: a round */
    return at_least(LANES_PIECE_MIN, f->groups * f->keys_each);
}

/* attention_lanes, as measured on a large GPU. Near: a row sees so few keys that few pieces do,
 * which the next product merges; few heads a workgroup, since the caches then come from the
 * device's own and workgroups are what lacks. Else more heads and two small workgroups a unit,
 * since reading the caches is the work. false: not on this device. */
static bool lanes_form_of(const device_caps *caps, const shapes *a, decode_form *f) {
    const uint32_t group = a->n_head / a->n_kv, units = units_of(caps);
    uint32_t lanes = LANES_MAX;
    if (!caps->subgroups) return false;
    while (lanes > 4 && (lanes > caps->subgroup_size || a->d4 % (2 * lanes))) lanes /= 2;
    const uint32_t fours = a->d4 / lanes; /* of a head, a lane */
    if (lanes > caps->subgroup_size || a->d4 % (2 * lanes) || fours > LANES_FOURS_MAX) return false;
    const uint32_t merged = at_least(LANES_MERGED_MIN, LANES_MERGED_BYTES * (a->whole ? 2u : 1u) /
                                                           (a->n_head * a->d4 * 16));
    const bool near = (uint64_t)round_up(a->keys, merged) * a->d4 * 16 <= LANES_NEAR_BYTES;
    *f = (decode_form){.lanes = lanes,
                       .groups = near ? LANES_GROUPS_NEAR : LANES_GROUPS_FAR,
                       .near = near,
                       .join = 1};
    f->keys_each = 4;
    f->n_split = at_most(round_up(a->keys, lanes_piece(f)), merged);
    f->heads = divisor_of(group, near ? LANES_HEADS_NEAR : LANES_HEADS_FAR);
    while (f->heads > 1 && (lanes_bytes(a->d4, f) > caps->workgroup_bytes ||
                            (near && (uint64_t)a->n_head / f->heads * a->n * f->n_split < units)))
        f->heads = divisor_of(group, f->heads - 1);
    const uint32_t beside = a->n_head / f->heads * a->n; /* workgroups without a split */
    if (!near)
        f->n_split = at_most(LANES_PIECES_MAX, at_most(round_up(a->keys, lanes_piece(f)),
                                                       at_least(1, 2 * units / beside)));
    f->join = f->heads;
    while (f->join > 1 && lanes_bytes(a->d4, f) > at_most(caps->workgroup_bytes, LANES_JOIN_BYTES))
        f->join = divisor_of(f->heads, f->join - 1);
    return lanes_bytes(a->d4, f) <= caps->workgroup_bytes &&
           lanes * f->groups <= caps->workgroup_invocations;
}

static uint32_t far_bytes(uint32_t d4, const decode_form *f) {
    const uint32_t parts = f->groups * f->lanes / d4;
    return at_least(16 * (f->heads + 2) * d4 + 8 * f->heads * f->tile, 16 * parts * f->join * d4) +
           12 * f->heads + 16 * f->groups;
}

/* attention_far: heads share what they read of the caches, so as many of them as there are, up
 * to registers; then one large workgroup a unit. Lanes that share a key: few, since sharing
 * costs, but so many that a unit's keys give all threads work. false: not on this device, or
 * attention_lanes is better. */
static bool far_form_of(const device_caps *caps, const shapes *a, decode_form *f) {
    const uint32_t group = a->n_head / a->n_kv, units = units_of(caps);
    if (!caps->subgroups || a->keys <= FAR_KEYS || group % FAR_HEADS) return false;
    const uint32_t threads = FAR_THREADS;
    const uint32_t lanes =
        caps->kind == DEVICE_DISCRETE && caps->subgroup_size >= 32 && a->d4 % 16 == 0 ? 16 : 8;
    *f = (decode_form){.heads = FAR_HEADS,
                       .keys_each = 4,
                       .lanes = lanes,
                       .groups = threads / lanes,
                       .tile = FAR_TILE,
                       .join = 1,
                       .line_lanes = LANES_MAX};
    if (lanes > caps->subgroup_size || a->d4 % lanes || a->d4 > threads ||
        threads > caps->workgroup_invocations)
        return false;
    f->ahead = a->d4 / lanes % 2 ? 1 : 2;
    while (far_bytes(a->d4, f) > caps->workgroup_bytes && f->tile > FAR_TILE_MIN) f->tile /= 2;
    while (f->line_lanes > 4 &&
           (f->line_lanes > caps->subgroup_size || a->d4 % (2 * f->line_lanes) ||
            threads / f->line_lanes < f->heads + 2))
        f->line_lanes /= 2;
    if (a->d4 % (2 * f->line_lanes) || far_bytes(a->d4, f) > caps->workgroup_bytes) return false;
    const uint32_t beside = a->n_head / f->heads * a->n; /* workgroups without a split */
    f->n_split = at_most(
        FAR_PIECES_MAX, at_most(round_up(a->keys, FAR_PIECE_MIN), at_least(1, 2 * units / beside)));
    f->join = f->heads;
    while (f->join > 1 && far_bytes(a->d4, f) > caps->workgroup_bytes) f->join /= 2;
    return true;
}

static uint32_t decode_bytes(uint32_t d4, uint32_t heads, uint32_t keys_each, bool shuffle,
                             bool joined) {
    const uint32_t tile = DECODE_THREADS / 8 * keys_each;
    return heads * d4 * 16 + tile * heads * 4 * (shuffle ? 1 : 9) + DECODE_THREADS * 16 +
           heads * 40 + (joined ? 2 * d4 * 16 + DECODE_THREADS * 4 : 0);
}

/* joined: with norms, rotations and cache writes. heads 0: the device's workgroup memory is too
 * small. */
static decode_form decode_form_of(const device_caps *caps, const shapes *a, bool joined) {
    decode_form f, far;
    const bool lanes = lanes_form_of(caps, a, &f);
    if (!(lanes && f.near) && far_form_of(caps, a, &far)) return far;
    if (lanes) return f;
    f = (decode_form){.lanes_shuffle = caps->subgroups && caps->subgroup_size >= 8};
    f.keys_each = f.lanes_shuffle ? 2 : 1;
    f.heads = divisor_of(a->n_head / a->n_kv, DECODE_HEADS_MAX);
    while (f.heads > 0 && decode_bytes(a->d4, f.heads, f.keys_each, f.lanes_shuffle, joined) >
                              caps->workgroup_bytes)
        f.heads = f.heads > 1 ? divisor_of(a->n_head / a->n_kv, f.heads - 1) : 0;
    if (f.heads == 0) return f;
    const uint32_t beside = a->n_head / f.heads * a->n; /* workgroups without a split */
    const uint32_t piece = a->window && !joined ? DECODE_WINDOW_KEYS : DECODE_PIECE_KEYS;
    f.n_split =
        at_least(1, at_most(round_up(a->keys, piece), round_up(2 * units_of(caps), beside)));
    return f;
}

static const char *decode_file(const decode_form *f) {
    return f->tile ? "attention_far" : f->lanes ? "attention_lanes" : "attention_decode";
}

static void request_decode(lower_request *r, const shapes *a, const decode_form *f,
                           uint32_t n_split) {
    lower_request_number(r, "D4", a->d4);
    if (!f->tile) lower_request_number(r, "HEADS", f->heads);
    lower_request_flag(r, "SPLIT", n_split > 1);
    if (f->lanes) {
        lower_request_number(r, "THREADS", f->groups * f->lanes);
        lower_request_number(r, "LANES", f->lanes);
        lower_request_number(r, "KEYS", f->keys_each);
        lower_request_number(r, "JOIN", f->join);
    }
    if (f->tile) {
        lower_request_number(r, "LINE_LANES", f->line_lanes);
        lower_request_number(r, "AHEAD", f->ahead);
        lower_request_number(r, "TILE", f->tile);
        lower_request_number(r, "PIECE", FAR_PIECE_MIN);
        return;
    }
    if (f->lanes) {
        lower_request_flag(r, "HELD", f->near);
        lower_request_number(r, "PIECE", lanes_piece(f));
        return;
    }
    lower_request_number(r, "KEYS_EACH", f->keys_each);
    if (f->lanes_shuffle) lower_request_part(r, "slices", "slices_subgroups");
}

static beryl_status attention_decode(lowering *l, const graph_node *node, const shapes *a,
                                     beryl_error *error) {
    const decode_form f = decode_form_of(l->caps, a, false);
    if (f.heads == 0) return lower_refuse(l, node, "heads this large", error);
    lower_request r = {.kernel.file = decode_file(&f)};
    request_decode(&r, a, &f, f.n_split);
    request_cache(&r, a->cache, f.lanes > 0 && !f.tile);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    bind_attention(s, l, node, a);
    bind_output(s, node, a, f.n_split, a->n);
    lower_u32(s, "n_split", f.n_split);
    lower_groups_3d(s, (lower_count){f.n_split, 0}, 1, (lower_count){a->n_head / f.heads, 0}, 1,
                    lower_count_of(a->q->dim[0]), 1);
    beryl_status status = lower_step_end(s, error);
    return status == BERYL_OK && f.n_split > 1 ? merge(l, node, a, NULL, f.n_split, 0, a->n, error)
                                               : status;
}

/* ---- many rows ------------------------------------------------------------------------------- */

typedef struct tile_form {
    uint32_t rows, keys, chunk, values, columns;
} tile_form;

static uint32_t tile_bytes(const tile_form *f, uint32_t tile4) {
    uint32_t stage =
        at_least(at_least((f->rows + f->keys) * (f->chunk + 1), f->values * tile4), TILE_THREADS);
    return 16 * (stage + f->keys * (f->rows / 4) + f->rows / 4);
}

/* The largest form that fits the device's workgroup memory; a lane keeps 4 or 8 rows of 1 or 2
 * fours. Best of those tried on an H200 (f16 cache, 8 heads of one kv head): 16.7 TFLOP/s at d
 * 256, 19.7 at d 512. */
static tile_form tile_form_of(const lowering *l, uint32_t tile4) {
    /* d to 64 */
    static const tile_form narrow[] = {{64, 64, 8, 16, 0}, {64, 64, 4, 8, 0}, {64, 32, 4, 4, 0}};
    static const tile_form middle[] = {{32, 64, 16, 16, 0}, {32, 64, 8, 8, 0}, {32, 32, 4, 4, 0}};
    /* d from 512 */
    static const tile_form wide[] = {{32, 128, 8, 8, 0}, {32, 64, 8, 8, 0}, {32, 32, 4, 4, 0}};
    const tile_form *forms = tile4 <= 16 ? narrow : tile4 <= 64 ? middle : wide;
    uint32_t i = 0;
    while (i < 2 && tile_bytes(&forms[i], tile4) > l->caps->workgroup_bytes) i++;
    tile_form f = forms[i];
    f.columns = f.rows * tile4 / 2 / TILE_THREADS >= 4 ? 2 : 1;
    return f;
}

static beryl_status attention_tile(lowering *l, const graph_node *node, const shapes *a,
                                   beryl_error *error) {
    uint32_t tile4 = 16;
    while (tile4 < a->d4) tile4 *= 2;
    const tile_form f = tile_form_of(l, tile4);
    const uint32_t group = divisor_of(a->n_head / a->n_kv, f.rows);
    if (tile_bytes(&f, tile4) > l->caps->workgroup_bytes)
        return lower_refuse(l, node, "heads this large", error);
    lower_request r = {.kernel.file = "attention_tile"};
    lower_request_number(&r, "D4", a->d4);
    lower_request_number(&r, "TILE4", tile4);
    lower_request_number(&r, "GROUP", group);
    lower_request_number(&r, "ROWS", f.rows);
    lower_request_number(&r, "KEYS", f.keys);
    lower_request_number(&r, "CHUNK", f.chunk);
    lower_request_number(&r, "VALUES", f.values);
    lower_request_number(&r, "COLUMNS", f.columns);
    request_cache(&r, a->cache, false);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    bind_attention(s, l, node, a);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", lower_count_of(a->q->dim[0]));
    lower_groups_3d(s, lower_count_of(a->q->dim[0]), f.rows / group,
                    (lower_count){a->n_head / group, 0}, 1, (lower_count){1, 0}, 1);
    return lower_step_end(s, error);
}

beryl_status lower_attention(lowering *l, const graph_node *node, beryl_error *error) {
    shapes a;
    beryl_status status = shapes_of(l, node, &a, error);
    if (status != BERYL_OK) return status;
    if (l->caps->kind == DEVICE_SOFTWARE) return attention_serial(l, node, &a, error);
    if (a.n <= DECODE_ROWS_MAX) return attention_decode(l, node, &a, error);
    return attention_tile(l, node, &a, error);
}

/* ---- a decode step: norms, rotations, cache writes and attention in one ---------------------- */

static shapes shapes_of_joined(const graph *g, const fused_attention *f) {
    const graph_tensor *q = graph_tensor_at(g, f->q), *cache = graph_tensor_at(g, f->k_cache);
    shapes a = {.n = q->dim[0].size,
                .n_head = f->n_head,
                .n_kv = f->n_kv,
                .d4 = f->head_dim / 4,
                .n_slot = cache->dim[0].size,
                .n_row = cache->dim[1].size,
                .window = f->window,
                .cache = cache->type,
                .q = q};
    a.keys = a.window ? at_most(a.window, a.n_row) : a.n_row;
    if (f->most) a.keys = at_most(a.keys, f->most);
    a.whole = a.window && a.keys == a.window && !f->most;
    return a;
}

uint32_t lower_attention_splits(const graph *g, const graph_store *store,
                                const fused_attention *f) {
    if (!store->device) return 0;
    const shapes a = shapes_of_joined(g, f);
    if (device_is_processor(device_caps_of(store->device)))
        return serial_split_of(device_caps_of(store->device), &a);
    return decode_form_of(device_caps_of(store->device), &a, true).n_split;
}

bool lower_attention_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                          const fused_attention *f) {
    (void)settings; /* activations are f32 either way */
    if (!store->device) return false;
    const bool serial = device_is_processor(device_caps_of(store->device));
    const shapes a = shapes_of_joined(g, f);
    return lower_attention_binds(g, store, f, 9u + (f->k ? 2u : 0u) + serial) &&
           (serial || decode_form_of(device_caps_of(store->device), &a, true).heads > 0);
}

/* form: NULL on software devices. */
static void request_joined(lower_request *r, const shapes *a, bool owner, const decode_form *form) {
    static const char *const own[] = {
        [TYPE_F32] = "cache_own_f32", [TYPE_F16] = "cache_own_f16", [TYPE_Q8_0] = "cache_own_q8_0"};
    static const char *const own_eights[] = {[TYPE_F32] = "cache_eight_own_f32",
                                             [TYPE_F16] = "cache_eight_own_f16",
                                             [TYPE_Q8_0] = "cache_eight_own_q8_0"};
    const bool lanes = form && form->lanes, eights = lanes && !form->tile;
    lower_request_part(r, "start",
                       !form   ? "attention_serial_heads"
                       : lanes ? "attention_lanes_heads"
                               : "attention_start_heads");
    if (owner) {
        lower_request_part(r, "cache", eights ? own_eights[a->cache] : own[a->cache]);
        if (a->cache != TYPE_F32) lower_request_part(r, "half_bits", "half_bits");
    } else {
        request_cache(r, a->cache, eights);
        lower_request_part(r, "fresh",
                           !form   ? "attention_serial_fresh_none"
                           : lanes ? "attention_lanes_fresh_none"
                                   : "attention_fresh_none");
        lower_request_flag(r, "FRESH", false);
    }
}

static void bind_joined(lower_step *s, const lowering *l, const fused_attention *f,
                        const shapes *a) {
    const bool owner = f->k != 0;
    uint32_t word[2] = {0};
    lower_bind(s, "q", f->q);
    lower_bind(s, "k_cache", f->k_cache);
    lower_bind(s, "v_cache", f->v_cache);
    lower_bind(s, "slot", f->slot);
    lower_bind(s, "pos", f->pos);
    lower_bind(s, "angles", f->angles);
    lower_bind_weights(s, "norms", (const graph_value[]){f->w_q, owner ? f->w_k : f->w_q}, 2, word);
    if (owner) {
        lower_bind(s, "key", f->k);
        lower_bind(s, "value", f->v);
    }
    if (a->cache == TYPE_Q8_0) lower_u32(s, "cache_plane", a->n_slot * a->n_row * a->n_kv * a->d4);
    lower_u32(s, "n_head", a->n_head);
    lower_u32(s, "n_kv", a->n_kv);
    lower_u32(s, "n_slot", a->n_slot);
    lower_u32(s, "n_row", a->n_row);
    lower_u32(s, "n_split", f->n_split);
    lower_u32(s, "window", a->window);
    lower_f32(s, "scale", f->scale);
    lower_f32(s, "eps", f->eps);
    lower_u32(s, "w_q_at", word[0] / 4);
    lower_u32(s, "w_k_at", word[1] / 4);
    lower_u32(s, "angles_offset", graph_tensor_at(l->g, f->angles)->offset / 4);
    lower_u32(s, "q_offset", a->q->offset / 4);
    lower_u32(s, "q0", a->n_head * a->d4);
    lower_u32(s, "q1", a->d4);
    lower_u32(s, "slot_offset", graph_tensor_at(l->g, f->slot)->offset);
    lower_u32(s, "pos_offset", graph_tensor_at(l->g, f->pos)->offset);
    lower_bind(s, "out", f->n_split > 1 ? f->partial : f->out);
    if (f->n_split > 1) lower_bind(s, "stats", f->stats);
    else lower_bind_scratch(s, "stats", SCRATCH_STATS, (uint64_t)a->n * a->n_head * 8);
}

beryl_status lower_fused_attention(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_attention *f = node->attr.fused.detail;
    if (!lower_attention_fits(l->g, l->store, &l->settings, f))
        return lower_refuse(l, node, "attention of this shape", error);
    const shapes a = shapes_of_joined(l->g, f);
    const bool serial = device_is_processor(l->caps);
    const decode_form form = decode_form_of(l->caps, &a, true);
    const lower_count rows = lower_count_of(a.q->dim[0]);
    lower_request r = {.kernel.file = serial ? "attention_serial" : decode_file(&form)};
    if (serial) {
        lower_request_number(&r, "D4", a.d4);
        lower_request_flag(&r, "SPLIT", f->n_split > 1);
    } else {
        request_decode(&r, &a, &form, f->n_split);
    }
    request_joined(&r, &a, f->k != 0, serial ? NULL : &form);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    bind_joined(s, l, f, &a);
    if (serial) {
        lower_bind_scratch(s, "work", SCRATCH_WORK,
                           (uint64_t)a.n * a.n_head * f->n_split * a.d4 * 32);
        lower_count_param(s, "n", rows);
        lower_u32(s, "first_row", 0);
        lower_u32(s, "rows", a.n);
        lower_groups(s, lower_count_times(rows, (uint64_t)a.n_head * f->n_split), 8);
    } else {
        lower_groups_3d(s, (lower_count){f->n_split, 0}, 1, (lower_count){a.n_head / form.heads, 0},
                        1, rows, 1);
    }
    lower_bytes(l, (uint64_t)f->head_dim * (f->k ? 8 : 4));
    beryl_status status = lower_step_end(s, error);
    if (status != BERYL_OK || f->n_split == 1 || f->merged_later) return status;
    return merge(l, node, &a, f, f->n_split, 0, a.n, error);
}
