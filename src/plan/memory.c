/* memory.c - lives, colours, offsets and buffers of a plan's items. */
#include "plan/memory.h"
#include "base/error.h"

enum { INPUT_ALIGN = 256 };

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static beryl_status list_items(plan_memory *p, const plan_record *record, beryl_error *error) {
    const graph *g = record->g;
    const uint64_t align = device_caps_of(p->device)->align_binding;
    if (!base_vec_reserve(p->heap, &p->items, g->tensors.count + record->scratches.count))
        return base_no_memory(error);
    for (graph_value v = 0; v < g->tensors.count; v++) {
        const graph_tensor *t = &g->tensors.data[v];
        plan_item *it = base_vec_add(p->heap, &p->items);
        if (v == 0 || t->base) continue;
        if (t->role == ROLE_STORED) {
            it->kind = ITEM_STORED;
            continue;
        }
        it->bytes = align_up(graph_element_bound(t) * base_type_block_bytes(t->type), 16);
        it->kind = t->role == ROLE_INPUT ? ITEM_INPUT : ITEM_ARENA;
        it->keep = t->role == ROLE_OUTPUT;
        if (it->kind == ITEM_INPUT) {
            it->offset = p->inputs_bytes;
            p->inputs_bytes +=
                (size_t)align_up(it->bytes, align > INPUT_ALIGN ? align : INPUT_ALIGN);
        }
    }
    for (size_t i = 0; i < record->scratches.count; i++) {
        plan_item *it = base_vec_add(p->heap, &p->items);
        it->kind = ITEM_ARENA;
        it->bytes = record->scratches.data[i].bytes;
    }
    return BERYL_OK;
}

static void find_lives(plan_memory *p, const plan_record *record) {
    for (uint32_t s = 0; s < record->steps.count; s++)
        for (uint32_t b = 0; b < record->steps.data[s].n_binding; b++) {
            if (record->steps.data[s].bindings[b].item == PLAN_STORED) continue;
            plan_item *it = &p->items.data[record->steps.data[s].bindings[b].item];
            if (!it->used) it->first = s;
            it->used = true;
            it->last = s;
            if (record->steps.data[s].once && record->steps.data[s].access[b] != DEVICE_READ)
                it->first = 0, it->keep = true;
        }
}

/* Colours that `index` may not have: of items that some step binds with another access than this
 * one. */
static uint32_t forbidden_colours(const plan_memory *p, const plan_record *record, uint32_t index,
                                  const bool *done) {
    uint32_t mask = 0;
    const plan_item *it = &p->items.data[index];
    for (uint32_t s = it->first; s <= it->last; s++) {
        const plan_step *st = &record->steps.data[s];
        for (uint32_t a = 0; a < st->n_binding; a++) {
            if (st->bindings[a].item != index) continue;
            for (uint32_t b = 0; b < st->n_binding; b++) {
                uint32_t other = st->bindings[b].item;
                if (other == PLAN_STORED || other == index ||
                    p->items.data[other].kind != ITEM_ARENA || !done[other])
                    continue;
                if (st->access[a] != st->access[b]) mask |= 1u << p->items.data[other].colour;
            }
        }
    }
    return mask;
}

/* First fit of item `index` among placed items of its colour whose lifetimes meet its own. */
static void fit(plan_memory *p, const uint32_t *order, uint32_t n_placed, uint32_t index,
                uint64_t align) {
    plan_item *it = &p->items.data[index];
    uint64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n_placed; i++) {
            const plan_item *o = &p->items.data[order[i]];
            bool meets = o->colour == it->colour && (o->keep || o->last >= it->first) &&
                         (it->keep || it->last >= o->first);
            if (meets && o->offset < offset + it->bytes && offset < o->offset + o->bytes) {
                offset = align_up(o->offset + o->bytes, align);
                moved = true;
            }
        }
    }
    it->offset = offset;
    if (p->arena_sizes[it->colour] < offset + it->bytes)
        p->arena_sizes[it->colour] = align_up(offset + it->bytes, 16);
}

static beryl_status place_items(plan_memory *p, const plan_record *record, beryl_error *error) {
    const uint32_t n = (uint32_t)p->items.count;
    const uint64_t align = device_caps_of(p->device)->align_binding;
    beryl_status status = BERYL_OK;
    uint32_t n_order = 0;
    base_arena arena; /* of this call */
    base_arena_init(&arena, p->heap);
    bool *done = base_arena_take(&arena, n, sizeof *done);
    uint32_t *order = base_arena_take(&arena, n, sizeof *order);
    if (!done || !order) {
        status = base_no_memory(error);
        goto end;
    }
    for (uint32_t s = 0; s < record->steps.count; s++)
        for (uint32_t b = 0; b < record->steps.data[s].n_binding; b++) {
            uint32_t index = record->steps.data[s].bindings[b].item;
            if (index == PLAN_STORED || p->items.data[index].kind != ITEM_ARENA || done[index])
                continue;
            uint32_t mask = forbidden_colours(p, record, index, done), colour = 0;
            while (colour < PLAN_COLOUR_MAX && (mask >> colour & 1)) colour++;
            if (colour == PLAN_COLOUR_MAX) {
                status = base_fail(error, BERYL_UNSUPPORTED,
                                   "a plan that needs more than %d arenas", PLAN_COLOUR_MAX);
                goto end;
            }
            p->items.data[index].colour = colour;
            done[index] = true;
            order[n_order++] = index;
        }
    for (uint32_t i = 1; i < n_order; i++) { /* by size, falling */
        uint32_t v = order[i], k = i;
        while (k > 0 && p->items.data[order[k - 1]].bytes < p->items.data[v].bytes)
            order[k] = order[k - 1], k--;
        order[k] = v;
    }
    for (uint32_t i = 0; i < n_order; i++) fit(p, order, i, order[i], align ? align : 256);
end:
    base_arena_fini(&arena);
    return status;
}

uint64_t plan_memory_bytes(const plan_memory *p) {
    uint64_t bytes = 0;
    for (int c = 0; c < PLAN_COLOUR_MAX; c++) bytes += p->arena_sizes[c];
    return bytes;
}

beryl_status plan_memory_make(plan_memory *p, bool placed, beryl_error *error) {
    beryl_status status = BERYL_OK;
    if (p->inputs_bytes) {
        status = device_buffer_make(p->device, p->inputs_bytes, "inputs", &p->input_buffer, error);
        if (status == BERYL_OK && !placed) p->inputs = base_heap_take(p->heap, p->inputs_bytes);
        if (status == BERYL_OK && !placed && !p->inputs) return base_no_memory(error);
    }
    for (int c = 0; status == BERYL_OK && c < PLAN_COLOUR_MAX; c++)
        if (p->arena_sizes[c])
            status = device_buffer_make(p->device, p->arena_sizes[c], "arena", &p->arena_buffers[c],
                                        error);
    return status;
}

beryl_status plan_memory_init(plan_memory *p, const plan_record *record, device *d,
                              beryl_error *error) {
    *p = (plan_memory){.heap = record->heap, .device = d};
    beryl_status status = list_items(p, record, error);
    if (status != BERYL_OK) return status;
    find_lives(p, record);
    return place_items(p, record, error);
}

void plan_memory_fini(plan_memory *p) {
    for (int c = 0; c < PLAN_COLOUR_MAX; c++)
        if (p->arena_buffers[c].id) device_buffer_drop(p->device, p->arena_buffers[c]);
    if (p->input_buffer.id) device_buffer_drop(p->device, p->input_buffer);
    if (p->inputs) base_heap_give(p->heap, p->inputs, p->inputs_bytes);
    if (p->heap) base_vec_fini(p->heap, &p->items);
}

device_buffer plan_memory_buffer(const plan_memory *p, const plan_item *item) {
    return item->kind == ITEM_INPUT ? p->input_buffer : p->arena_buffers[item->colour];
}
