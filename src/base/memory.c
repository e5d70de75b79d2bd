/* memory.c - heap with counters, arena, vector, views, text builder, map, hash.
 *
 * Refuses sizes that overflow (they are "no memory", never a smaller block). The idea: all memory
 * passes base_heap_resize, so one failing allocator tests every path of the library. */
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- heap */

static void *malloc_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    (void)user, (void)old_size;
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

void base_heap_init(base_heap *heap, const beryl_allocator *allocator) {
    memset(heap, 0, sizeof *heap);
    if (allocator) heap->allocator = *allocator;
    if (!heap->allocator.resize) heap->allocator = (beryl_allocator){malloc_resize, NULL};
}

static void heap_count(base_heap *heap, size_t old_size, size_t new_size) {
    uint64_t change =
        (uint64_t)new_size - old_size; /* wraps when it shrinks, and so does the sum */
    uint64_t now = __atomic_add_fetch(&heap->bytes, change, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&heap->bytes_peak, __ATOMIC_RELAXED);
    while (new_size > old_size && now > peak &&
           !__atomic_compare_exchange_n(&heap->bytes_peak, &peak, now, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {}
}

void *base_heap_resize(base_heap *heap, void *memory, size_t old_size, size_t new_size) {
    if (memory && !old_size) old_size = 1; /* a take of 0 bytes holds one, so that it is not NULL */
    if (!memory) old_size = 0;
    if (!memory && !new_size) return NULL;
    if (new_size > PTRDIFF_MAX) return NULL;
    __atomic_add_fetch(&heap->calls, 1, __ATOMIC_RELAXED);
    void *result = heap->allocator.resize(heap->allocator.user, memory, old_size, new_size);
    if (result || !new_size) heap_count(heap, old_size, new_size);
    return new_size ? result : NULL;
}

void *base_heap_take(base_heap *heap, size_t size) {
    if (!size) size = 1;
    void *memory = base_heap_resize(heap, NULL, 0, size);
    if (memory) memset(memory, 0, size);
    return memory;
}

void base_heap_give(base_heap *heap, void *memory, size_t size) {
    if (memory) base_heap_resize(heap, memory, size, 0);
}

/* ---- arena */

enum { ARENA_ALIGN = 16, ARENA_BLOCK_FIRST = 4096, ARENA_BLOCK_MAX = 1 << 20 };

typedef struct base_arena_block base_arena_block;
struct base_arena_block {
    base_arena_block *next;
    size_t capacity, used; /* bytes, this head included */
};

void base_arena_init(base_arena *arena, base_heap *heap) {
    arena->heap = heap;
    arena->head = NULL;
}

void base_arena_fini(base_arena *arena) {
    for (base_arena_block *block = arena->head, *next; block; block = next) {
        next = block->next;
        base_heap_give(arena->heap, block, block->capacity);
    }
    arena->head = NULL;
}

/* Bytes to skip from base + used to the next aligned address: an allocator may align less than we
 * do. */
static size_t arena_gap(const base_arena_block *block, size_t used) {
    return (size_t)(-((uintptr_t)block + used) & (ARENA_ALIGN - 1));
}

static void *arena_block_take(base_arena_block *block, size_t size) {
    size_t gap = arena_gap(block, block->used);
    if (block->capacity - block->used < gap || block->capacity - block->used - gap < size)
        return NULL;
    void *memory = (char *)block + block->used + gap;
    block->used += gap + size;
    return memset(memory, 0, size);
}

void *base_arena_take(base_arena *arena, size_t count, size_t size) {
    const size_t most = PTRDIFF_MAX - sizeof(base_arena_block) - ARENA_ALIGN;
    if (size && count > most / size) return NULL;
    size *= count;
    base_arena_block *head = arena->head;
    void *memory = head ? arena_block_take(head, size) : NULL;
    if (memory) return memory;

    size_t need = sizeof(base_arena_block) + ARENA_ALIGN + size, capacity = ARENA_BLOCK_FIRST;
    if (head)
        capacity = head->capacity < ARENA_BLOCK_MAX / 2 ? head->capacity * 2 : ARENA_BLOCK_MAX;
    bool own_block = need > capacity / 2;
    if (own_block) capacity = need;
    base_arena_block *block = base_heap_resize(arena->heap, NULL, 0, capacity);
    if (!block) return NULL;
    block->capacity = capacity;
    block->used = sizeof *block;
    if (own_block && head) { /* behind the head, whose rest is still of use */
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->head = block;
    }
    return arena_block_take(block, size);
}

char *base_arena_text(base_arena *arena, const char *text, size_t size) {
    if (size == SIZE_MAX) return NULL;
    char *copy = base_arena_take(arena, size + 1, 1);
    if (copy && size) memcpy(copy, text, size);
    return copy;
}

char *base_arena_print(base_arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return NULL;
    char *text = base_arena_take(arena, (size_t)length + 1, 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

/* ---- vector */

bool base_vec_grow(base_heap *heap, void **data, size_t count, size_t *capacity, size_t more,
                   size_t size) {
    if (more <= *capacity - count) return true;
    const size_t most = PTRDIFF_MAX / size;
    if (count > most || more > most - count) return false;
    size_t want = count + more;
    size_t room = *capacity > most / 2 ? most : *capacity * 2;
    if (room < 8 && most >= 8) room = 8;
    if (room < want) room = want;
    void *memory; /* *data is really a T *: only its bytes may be touched here */
    memcpy(&memory, data, sizeof memory);
    memory = base_heap_resize(heap, memory, *capacity * size, room * size);
    if (!memory) return false;
    memcpy(data, &memory, sizeof memory);
    *capacity = room;
    return true;
}

/* ---- views */

base_view base_view_of(const char *text) {
    return (base_view){text ? text : "", text ? strlen(text) : 0};
}

const char *base_moved(const char *p, base_view from, ptrdiff_t by) {
    return (uintptr_t)p - (uintptr_t)from.data < from.size
               ? (const char *)((uintptr_t)p + (uintptr_t)by)
               : p;
}

bool base_view_equal(base_view a, base_view b) {
    return a.size == b.size && (a.size == 0 || !memcmp(a.data, b.data, a.size));
}

bool base_view_begins(base_view text, base_view prefix) {
    return text.size >= prefix.size &&
           (prefix.size == 0 || !memcmp(text.data, prefix.data, prefix.size));
}

bool base_view_ends(base_view text, base_view suffix) {
    return text.size >= suffix.size &&
           (suffix.size == 0 ||
            !memcmp(text.data + (text.size - suffix.size), suffix.data, suffix.size));
}

/* ---- text builder */

void base_text_init(base_text *text, base_heap *heap) {
    *text = (base_text){.heap = heap};
}

void base_text_fini(base_text *text) {
    base_heap_give(text->heap, text->data, text->capacity);
    *text = (base_text){.heap = text->heap, .failed = text->failed};
}

/* Room for `more` bytes and the NUL. */
static bool text_reserve(base_text *text, size_t more) {
    if (text->failed) return false;
    void *data = text->data;
    text->failed = more == SIZE_MAX ||
                   !base_vec_grow(text->heap, &data, text->size, &text->capacity, more + 1, 1);
    text->data = data;
    return !text->failed;
}

void base_text_add(base_text *text, const char *bytes, size_t size) {
    if (!text_reserve(text, size)) return;
    if (size) memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = 0;
}

void base_text_add_view(base_text *text, base_view view) {
    base_text_add(text, view.data, view.size);
}

void base_text_print(base_text *text, const char *format, ...) {
    if (!text_reserve(text, 0)) return;
    va_list args;
    size_t room = text->capacity - text->size;
    va_start(args, format);
    int length = vsnprintf(text->data + text->size, room, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length >= room) {
        text->data[text->size] = 0; /* as it was, should there be no room */
        if (!text_reserve(text, (size_t)length)) return;
        va_start(args, format);
        length = vsnprintf(text->data + text->size, (size_t)length + 1, format, args);
        va_end(args);
    }
    if (length < 0) text->failed = true;
    else text->size += (size_t)length;
    text->data[text->size] = 0;
}

void base_text_clear(base_text *text) {
    text->size = 0;
    if (text->data) text->data[0] = 0;
}

char *base_text_take(base_text *text, size_t *size) {
    char *data = NULL;
    if (text_reserve(text, 0)) {
        text->data[text->size] = 0;
        data = base_heap_resize(text->heap, text->data, text->capacity, text->size + 1);
    }
    /* the capacity is unknown to the caller, so a block that did not shrink is no use */
    if (!data) {
        text->failed = true;
        base_text_fini(text);
        if (size) *size = 0;
        return NULL;
    }
    if (size) *size = text->size;
    base_text_init(text, text->heap);
    return data;
}

/* ---- map */

typedef struct base_map_slot {
    const char *key; /* borrowed; NULL: free */
    size_t size;
    uint32_t hash, value; /* hash: the upper half, the lower one chooses the slot */
} base_map_slot;

void base_map_init(base_map *map, base_heap *heap) {
    *map = (base_map){.heap = heap, .seed = base_random_seed()};
}

void base_map_fini(base_map *map) {
    base_heap_give(map->heap, map->slots, map->capacity * sizeof *map->slots);
    *map = (base_map){.heap = map->heap, .seed = map->seed};
}

/* The slot of key, or the free one where it belongs. There is always a free slot. */
static base_map_slot *map_slot(base_map_slot *slots, size_t capacity, base_view key,
                               uint64_t hash) {
    for (size_t i = (size_t)hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        base_map_slot *slot = &slots[i];
        if (!slot->key) return slot;
        if (slot->hash == (uint32_t)(hash >> 32) &&
            base_view_equal((base_view){slot->key, slot->size}, key))
            return slot;
    }
}

bool base_map_reserve(base_map *map, size_t count) {
    if (count <= map->capacity / 4 * 3) return true;
    if (count > SIZE_MAX / sizeof(base_map_slot) / 4) return false;
    size_t capacity = 16;
    while (capacity / 4 * 3 < count) capacity *= 2;
    base_map_slot *slots = base_heap_take(map->heap, capacity * sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < map->capacity; i++) {
        base_map_slot *from = &map->slots[i];
        if (!from->key) continue;
        base_view key = {from->key, from->size};
        *map_slot(slots, capacity, key, base_hash(key.data, key.size, map->seed)) = *from;
    }
    base_heap_give(map->heap, map->slots, map->capacity * sizeof *slots);
    map->slots = slots;
    map->capacity = capacity;
    return true;
}

bool base_map_set(base_map *map, base_view key, uint32_t value) {
    assert(key.data || !key.size);
    if (!base_map_reserve(map, map->count + 1)) return false;
    uint64_t hash = base_hash(key.data, key.size, map->seed);
    base_map_slot *slot = map_slot(map->slots, map->capacity, key, hash);
    if (!slot->key) {
        map->count++;
        *slot = (base_map_slot){key.data ? key.data : "", key.size, (uint32_t)(hash >> 32), 0};
    }
    slot->value = value;
    return true;
}

bool base_map_find(const base_map *map, base_view key, uint32_t *value) {
    if (!map->count) return false;
    const base_map_slot *slot =
        map_slot(map->slots, map->capacity, key, base_hash(key.data, key.size, map->seed));
    if (slot->key && value) *value = slot->value;
    return slot->key != NULL;
}

void base_map_follow(base_map *map, base_view from, ptrdiff_t by) {
    for (size_t i = 0; i < map->capacity; i++)
        map->slots[i].key = base_moved(map->slots[i].key, from, by);
}

/* ---- hash: SipHash-1-3 (Aumasson and Bernstein 2012), since keys come from hostile files */

static inline uint64_t rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

__attribute__((always_inline)) static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* 8 bytes, the first one lowest. */
static uint64_t word_at(const unsigned char *b) {
    uint64_t word;
    memcpy(&word, b, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

uint64_t base_hash(const void *data, size_t size, uint64_t seed) {
    const uint64_t key[2] = {seed, ~seed};
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    const unsigned char *b = data;
    const size_t whole = size & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        const uint64_t word = word_at(b + i);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (size_t j = whole; j < size; j++) last |= (uint64_t)b[j] << 8 * (j - whole);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
