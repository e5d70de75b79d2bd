/* sample.c - lowering of argmax and of sampling.
 *
 * The rule of sampling, which the reference function follows too. For a row of logits and its
 * settings:
 *   candidates   the k largest logits in falling order, ties by lower index, NaN last; k = top_k,
 *                at most 256 (0: 256), and 1 where the temperature is not above 0
 *   weights      p[i] = exp((logit[i] - logit[0]) / temperature) in f32
 *   top-p        (where 0 < top_p < 1) the shortest prefix whose sum is at least top_p times the
 *                sum of all p; at least one
 *   min-p        (where min_p > 0) only while p[i] >= min_p * p[0]
 *   draw         u = (w >> 8) * 2^-24 with w the first word of Threefry-2x32-20, key = seed,
 *                counter = {counter, 0}; the first candidate whose running sum is above u times the
 *                sum of the kept p; the last kept one if none is
 * So a seed gives the same token on every device, but where sums taken in another order fall on
 * the other side of a limit.
 *
 * The work: the best of each of up to 1,024 parts of a row (argmax), then the k-th best of these
 * bounds the candidates from below, so that few elements are listed (sample_select) and one
 * workgroup sorts and draws (sample_draw). */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/request.h"

enum {
    PARTS_MAX = 1024, /* of sample_select */
    REGIONS_MAX = 64, /* of sample_draw */
    REGION_MIN = 4096,
    ARGMAX_PART = 2048, /* elements a part, at least, where nothing but the best is wanted */
    SERIAL_THREADS = 8,
    SERIAL_MAX = 40000, /* elements that one thread may walk */
    THREADS = 256,
};

enum { SCRATCH_BEST, SCRATCH_LIST, SCRATCH_COUNTS };

typedef struct parts {
    uint32_t size, n;
} parts;

static parts parts_of(uint32_t d, uint32_t most, uint32_t least) {
    uint32_t size = (d + most - 1) / most;
    if (size < least) size = least;
    return (parts){size, (d + size - 1) / size};
}

static uint64_t best_bytes(const graph_tensor *x, parts p) {
    return (uint64_t)x->dim[0].size * p.n * 8;
}

/* The first stage of both: the best of each part. */
static beryl_status lower_best(lowering *l, const graph_node *node, parts p, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const bool serial = l->caps->kind == DEVICE_SOFTWARE && p.size <= SERIAL_MAX;
    const uint32_t threads = serial ? SERIAL_THREADS : THREADS, lanes = serial          ? 1
                                                                        : p.size > 1024 ? THREADS
                                                                                        : 32;
    lower_request r = {.kernel.file = "argmax"};
    lower_request_number(&r, "THREADS", threads);
    lower_request_number(&r, "LANES", lanes);
    if (serial) lower_request_part(&r, "reduce_best", "reduce_best_single");
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", node->in[0]);
    lower_bind_scratch(s, "best", SCRATCH_BEST, best_bytes(x, p));
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "d", x->dim[1].size);
    lower_u32(s, "size", p.size);
    lower_u32(s, "n_part", p.n);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_groups(s, lower_count_times(lower_count_of(x->dim[0]), p.n), threads / lanes);
    return lower_step_end(s, error);
}

static beryl_status check_rows(const lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    if (x->dim[1].extent || (x->stride[1] != 1 && x->dim[1].size != 1))
        return lower_refuse(l, node, "rows of varying length, or with gaps", error);
    return BERYL_OK;
}

beryl_status lower_argmax(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const parts p = parts_of(x->dim[1].size, PARTS_MAX,
                             l->caps->kind == DEVICE_SOFTWARE ? ARGMAX_PART / 8 : ARGMAX_PART);
    beryl_status status = check_rows(l, node, error);
    if (status == BERYL_OK) status = lower_best(l, node, p, error);
    if (status != BERYL_OK) return status;
    const bool serial = l->caps->kind == DEVICE_SOFTWARE;
    lower_request r = {.kernel.file = "argmax_join"};
    lower_request_number(&r, "THREADS", serial ? SERIAL_THREADS : THREADS);
    lower_request_number(&r, "LANES", serial ? 1 : THREADS);
    if (serial) lower_request_part(&r, "reduce_best", "reduce_best_single");
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind_scratch(s, "best", SCRATCH_BEST, best_bytes(x, p));
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "n_part", p.n);
    lower_groups(s, lower_count_of(x->dim[0]), serial ? SERIAL_THREADS : 1);
    return lower_step_end(s, error);
}

static void bind_rows(lower_step *s, const lowering *l, const graph_node *node, parts regions) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *settings = graph_tensor_at(l->g, node->in[1]);
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "settings", node->in[1]);
    lower_bind_scratch(s, "list", SCRATCH_LIST, (uint64_t)x->dim[0].size * x->dim[1].size * 4);
    lower_bind_scratch(s, "counts", SCRATCH_COUNTS, (uint64_t)x->dim[0].size * regions.n * 4);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "d", x->dim[1].size);
    lower_u32(s, "size", regions.size);
    lower_u32(s, "n_region", regions.n);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "settings_offset", settings->offset);
    lower_u32(s, "settings0", settings->stride[0]);
}

beryl_status lower_sample(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const parts p = parts_of(x->dim[1].size, PARTS_MAX, 1),
                regions = parts_of(x->dim[1].size, REGIONS_MAX, REGION_MIN);
    beryl_status status = check_rows(l, node, error);
    if (status == BERYL_OK) status = lower_best(l, node, p, error);
    if (status != BERYL_OK) return status;
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "sample_select"});
    bind_rows(s, l, node, regions);
    lower_bind_scratch(s, "best", SCRATCH_BEST, best_bytes(x, p));
    lower_u32(s, "n_part", p.n);
    lower_groups_3d(s, (lower_count){regions.n, 0}, 1, lower_count_of(x->dim[0]), 1,
                    (lower_count){1, 0}, 1);
    status = lower_step_end(s, error);
    if (status != BERYL_OK) return status;
    s = lower_step_begin(l, node, &(kernels_request){.file = "sample_draw"});
    bind_rows(s, l, node, regions);
    lower_bind(s, "out", node->out[0]);
    lower_groups(s, lower_count_of(x->dim[0]), 1);
    return lower_step_end(s, error);
}
