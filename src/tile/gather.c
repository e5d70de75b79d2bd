/* gather.c - kernels for rows of tables by index: words as they are, and rows of weights of any
 * type. */
#include "base/error.h"
#include "tile/block.h"
#include "tile/product.h"

enum { GATHER_LANES = 64 };

/* Index `i` of the list, outside of the table 0. */
static ir_id index_at(ir_builder *b, ir_memory ids, ir_id at, ir_id n_row) {
    ir_id id = ir_cast(b, IR_U32, ir_load(b, ids, at, 1));
    return ir_select(b, ir_lt(b, id, n_row), id, ir_u32(b, 0));
}

/* Words as they are; a lane an element. */
static beryl_status gather_words(lowering *l, const graph_node *node, lower_count n) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]),
                       *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = table->rank == 2 ? table->dim[1].size : 1;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "gather_words", GATHER_LANES);
    ir_memory from = tile_bind(&k, "table", node->in[0], IR_U32, IR_READ),
              index = tile_read(&k, "ids", node->in[1]);
    ir_memory to = tile_bind(&k, "out", node->out[0], IR_U32, IR_READ_WRITE);
    ir_id count = tile_count(&k, "n", n),
          n_row = tile_count(&k, "n_row", lower_count_of(table->dim[0]));
    ir_id table_offset = tile_u32(&k, "table_offset", table->offset),
          ids_offset = tile_u32(&k, "ids_offset", ids->offset);
    ir_id lane = tile_lane(&k), row = tile_div(b, lane, d), column = tile_rem(b, lane, d);
    ir_if(b, ir_lt(b, row, count));
    ir_id id = index_at(b, index, ir_add(b, ids_offset, row), n_row);
    ir_id at = ir_add(b, ir_add(b, table_offset, tile_mul(b, id, table->stride[0])), column);
    ir_id word = ir_load(b, from, at, 1);
    if (table->dim[0].extent) /* which may have no rows */
        word = ir_select(b, ir_eq(b, n_row, ir_u32(b, 0)), ir_u32(b, 0), word);
    ir_store(b, to, lane, word);
    ir_end(b);
    return tile_end(&k, lower_count_times(n, d), GATHER_LANES);
}

static void store_run(tile_kernel *k, ir_memory out, ir_type type, ir_id at, bool aligned,
                      const ir_id *values) {
    ir_builder *b = k->b;
    for (uint32_t i = 0; i < TILE_RUN / k->wide; i++) {
        ir_id to = tile_add(b, at, i * k->wide);
        const ir_id value = ir_cast(b, type, values[i]);
        if (aligned) ir_store(b, out, to, value);
        for (uint32_t e = 0; !aligned && e < k->wide; e++)
            ir_store(b, out, tile_add(b, to, e), ir_extract(b, value, e));
    }
}

/* A lane a chunk; what is left of a plain row is one more. */
static beryl_status gather_shard(lowering *l, const graph_node *node, const tile_matrix *w,
                                 lower_count n, uint32_t shard) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]),
                       *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored ? &w->stored->shard[shard] : NULL;
    tile_kernel k;
    tile_weight table;
    ir_builder *b = tile_begin(&k, l, "gather_rows", GATHER_LANES);
    if (place) tile_weight_stored(&table, &k, "table", w->value, shard, w->k);
    else tile_weight_plain(&table, &k, "table", w->value, w->k);
    ir_memory index = tile_read(&k, "ids", node->in[1]), to = tile_write(&k, "out", node->out[0]);
    ir_id count = tile_count(&k, "n", n), ids_offset = tile_u32(&k, "ids_offset", ids->offset);
    ir_id out_offset = tile_u32(&k, "out_offset", out->offset);
    const uint32_t whole = table.blocks * table.chunks, rest = table.plain ? w->k % TILE_RUN : 0,
                   units = whole + (rest > 0);
    const ir_type type = tile_element(out->type);
    const bool aligned = w->k % k.wide == 0 && out->offset % k.wide == 0;
    ir_id lane = tile_lane(&k), i = tile_div(b, lane, units), unit = tile_rem(b, lane, units);
    ir_if(b, ir_lt(b, i, count));
    ir_id id = index_at(b, index, ir_add(b, ids_offset, i), ir_u32(b, w->m));
    ir_id row = tile_add(b, id, place ? 0 - place->row : 0),
          to_row = ir_add(b, out_offset, tile_mul(b, i, w->k));
    ir_if(b, ir_lt(b, row, ir_u32(b, place ? place->n_row : w->m)));
    ir_id factor = ir_f32(b, node->attr.gather_rows.factor);
    if (rest) ir_if(b, ir_lt(b, unit, ir_u32(b, whole)));
    if (whole) {
        tile_chunk c;
        ir_id block = tile_div(b, unit, table.chunks), part = tile_rem(b, unit, table.chunks),
              values[4];
        tile_chunk_load(&table, row, block, part, &c);
        for (uint32_t run = 0; run < table.runs; run++) {
            tile_run_load(&table, &c, run, values);
            for (uint32_t v = 0; v < TILE_RUN / k.wide; v++)
                values[v] = ir_mul(b, values[v], ir_splat(b, factor, k.wide));
            store_run(&k, to, type, ir_add(b, to_row, tile_run_at(&table, block, part, run)),
                      aligned, values);
        }
    }
    if (rest) {
        ir_else(b);
        for (uint32_t e = w->k - rest; e < w->k; e++) {
            ir_id column = ir_u32(b, e);
            ir_id value = ir_mul(b, tile_element_load(&table, row, column), factor);
            ir_store(b, to, ir_add(b, to_row, column), ir_cast(b, type, value));
        }
        ir_end(b);
    }
    ir_end(b);
    ir_end(b);
    return tile_end(&k, lower_count_times(n, units), GATHER_LANES);
}

beryl_status tile_gather_rows(lowering *l, const graph_node *node) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]),
                       *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t last = table->rank - 1u;
    lower_count n = {1, 0};
    if (!graph_is_contiguous(ids)) return lower_refuse(l, node, "indices with gaps");
    for (uint32_t i = 0; i < ids->rank; i++) {
        if (ids->dim[i].extent && i > 0)
            return lower_refuse(l, node, "indices over an inner extent");
        n = ids->dim[i].extent ? lower_count_of(ids->dim[i])
                               : lower_count_times(n, ids->dim[i].size);
    }
    if (table->dim[last].extent && table->rank == 2)
        return lower_refuse(l, node, "rows of varying length");
    const bool words =
        table->type == TYPE_I32 || (table->type == TYPE_F32 && node->attr.gather_rows.factor == 1 &&
                                    graph_tensor_at(l->g, node->out[0])->type == TYPE_F32);
    const store_tensor *stored = lower_stored(l, node->in[0]);
    if (words && (table->rank == 1 || table->stride[1] == 1) && (!stored || stored->n_shard == 1))
        return gather_words(l, node, n);
    tile_matrix w;
    if (table->rank == 1) {
        w = (tile_matrix){
            .value = node->in[0], .type = table->type, .m = table->dim[0].size, .k = 1};
        if (table->dim[0].extent || base_type_is_quantised(table->type))
            return lower_refuse(l, node, "a table that varies in length");
    } else if (!tile_matrix_of(l, node->in[0], &w) || w.first) {
        return lower_refuse(l, node, "a table that is not whole or varies in length");
    }
    beryl_status status = BERYL_OK;
    const uint32_t n_shard = w.stored ? w.stored->n_shard : 1;
    for (uint32_t i = 0; status == BERYL_OK && i < n_shard; i++)
        status = gather_shard(l, node, &w, n, i);
    return status;
}
