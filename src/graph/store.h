/* store.h - the tensors that outlive a run: weights (from a file, packed into planes, never
 * written) and states (KV cache, tokens). One store serves all graphs of a model on one device, or
 * on the reference functions (device NULL: weights as the file has them, and states, on the heap).
 *
 * Order of use: add everything, store_layout (sizes, buffers, shards: refuses what will not fit
 * before anything is allocated), store_make, then store_upload_step until OK. From then on no
 * weight is read again but those `on_host`. Reading takes STORE_WINDOW_BYTES of memory, whatever
 * the size of the file.
 */
#ifndef GRAPH_STORE_H
#define GRAPH_STORE_H

#include "base/types.h"
#include "device/device.h"
#include "graph/pack.h"

enum { STORE_RANK_MAX = 10, STORE_SHARD_MAX = 16, STORE_WINDOW_BYTES = 16 << 20 };

typedef struct store_shard {
    uint32_t buffer;
    uint64_t offset;
    uint32_t row, n_row;
    graph_pack_layout layout;
} store_shard;

typedef struct store_tensor {
    const char *name;
    base_type type;
    bool is_state;
    uint8_t rank;
    uint32_t dim[STORE_RANK_MAX]; /* row-major; quantised: the last is the row */
    uint32_t group;               /* tensors of one group share a buffer (a layer) where they fit */
    uint32_t file;                /* weight: index of the source */
    uint64_t file_offset, file_bytes;
    /* of three axes: bytes from one matrix to the next in the file; 0: nothing lies between them */
    uint64_t file_step;
    /* weight: index of what goes with its products (F32 [1], or [dim[0]] one a matrix);
     * UINT32_MAX: nothing */
    uint32_t scale;
    /* stays in the file: only for the reference functions and host gathers */
    bool on_host;
    uint32_t n_shard;
    store_shard shard[STORE_SHARD_MAX]; /* rows (all leading axes flattened) [row, row + n_row) */
    void *host;                         /* on the reference functions: its data */
    uint64_t host_done;                 /* weight: bytes of them that were read */
} store_tensor;

typedef struct store_place {
    uint32_t tensor, shard, row;
} store_place; /* row: of the shard */

typedef struct store_program {
    uint64_t hash; /* of its text */
    device_program id;
    bool f16, subgroups, dot; /* what it needs of the device */
    /* compared with the reference on this device (the engine's start-up check) */
    bool proven;
} store_program;

typedef struct graph_store {
    base_heap *heap;
    base_arena arena;
    device *device; /* borrowed; NULL: reference */
    base_vec(store_tensor) tensors;
    base_vec(struct store_buffer {
        device_buffer id;
        uint64_t size;
        uint32_t group;
    }) buffers;
    const beryl_source *sources; /* borrowed, [n_source] */
    uint32_t n_source;
    uint64_t weight_bytes, state_bytes;
    uint64_t upload_done, upload_total; /* bytes of file */
    uint32_t uploads;                   /* begun again: what was made of weights is out of date */
    store_place upload;                 /* what is uploaded next */
    uint32_t upload_plane;
    void *window;
    size_t window_size; /* of the file, on their way to the device */
    bool window_full;   /* with the rows that are uploaded next */
    /* on the reference functions: of this tensor, the bytes [at, end); none: 0 */
    struct store_window {
        uint32_t tensor;
        uint64_t at, end;
    } read;
    /* the last rows were in the system's memory, as fast as they came */
    bool cached;
    const struct lower_tuned *tuned; /* [n_tuned] forms of products that tuning found; borrowed */
    uint32_t n_tuned;
    /* that tuning found (ir/tune.h), and choices of lowerings; NULL: none. Borrowed */
    struct ir_cache *schedules;
    base_vec(store_program) programs; /* compiled once for all plans */
} graph_store;

beryl_status store_init(graph_store *s, base_heap *heap, device *d, const beryl_source *sources,
                        uint32_t n_source, beryl_error *error);
void store_fini(graph_store *s);
/* Index of the new tensor, UINT32_MAX: no memory. name is copied. */
uint32_t store_add_weight(graph_store *s, const char *name, base_type type, uint32_t rank,
                          const uint32_t *dim, uint32_t group, uint32_t file, uint64_t file_offset,
                          bool on_host);
uint32_t store_add_state(graph_store *s, const char *name, base_type type, uint32_t rank,
                         const uint32_t *dim, uint32_t group);
/* Decides buffers and shards. memory: bytes that may be used, 0: what the device says.
 * NO_DEVICE_MEMORY names the figures. */
beryl_status store_layout(graph_store *s, uint64_t memory, beryl_error *error);
beryl_status store_make(graph_store *s, beryl_error *error); /* buffers; states zeroed */
/* Tensors that come and go while the store is in use: those that were added after a mark, in groups
 * of their own. store_extend lays them out and makes their buffers, store_upload_step then fills
 * them; store_upload_again: their source says something else, they are filled anew from tensor
 * `first` on. store_cut drops them, also after a failure; no plan and no run may use them. */
typedef struct store_mark {
    uint32_t tensor, buffer;
    uint64_t weight_bytes, state_bytes;
} store_mark;
store_mark store_mark_of(const graph_store *s);
beryl_status store_extend(graph_store *s, const store_mark *mark, uint64_t memory,
                          beryl_error *error);
void store_upload_again(graph_store *s, uint32_t first);
void store_cut(graph_store *s, const store_mark *mark);
/* OK: all there. EVENT: progressed (upload_done of upload_total). PENDING: wait for file or
 * device. */
beryl_status store_upload_step(graph_store *s, beryl_error *error);
/* Is anything still to be uploaded? */
bool store_is_uploading(const graph_store *s);
/* Has the upload not come to this weight? What stands there then is overwritten. */
bool store_is_ahead(const graph_store *s, uint32_t index);
/* The first n rows of a weight to the device, from a source that has them at `at` and answers at
 * once. */
beryl_status store_write_rows(graph_store *s, uint32_t index, const beryl_source *source,
                              uint64_t at, uint64_t n, beryl_error *error);
/* All bytes of a weight as the file has them, on the heap, where the reference functions have
 * it; else it is read there at the first call. PENDING: call again. */
beryl_status store_host_weight(graph_store *s, uint32_t index, const void **data,
                               beryl_error *error);
/* Elements [from, from + n) of a weight (row-major; whole blocks) as f32: from the heap, where
 * the reference functions have it, else by one read of the file, of what follows too for the
 * reference functions. PENDING possible. */
beryl_status store_read_elements(graph_store *s, uint32_t index, uint64_t from, uint32_t n,
                                 float *out, beryl_error *error);
/* Raw bytes of a state as they lie on the device, for snapshots; `size` and `offset` multiples
 * of 4. Reading is begun with store_state_read (a submit of its own) and done when
 * store_state_read_step is OK: `data` is then borrowed until the next read. At most
 * STORE_READ_MAX bytes at once. */
enum { STORE_READ_MAX = 8 << 20 };
beryl_status store_state_read(graph_store *s, uint32_t index, uint64_t offset, size_t size,
                              device_ticket *ticket, beryl_error *error);
beryl_status store_state_read_step(graph_store *s, uint32_t index, uint64_t offset,
                                   device_ticket ticket, const void **data, beryl_error *error);
uint64_t store_state_bytes(const graph_store *s, uint32_t index);
beryl_status store_state_write(graph_store *s, uint32_t index, uint64_t offset, const void *from,
                               size_t size, beryl_error *error);

#endif
