/* memory.h - heaps, arenas, vectors, maps, strings. All memory of the library comes from a heap,
 * which counts and may fail; an arena gives lifetimes a name (engine, graph, run). */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "beryl.h"

#include <stdalign.h>

/* ---- heap ------------------------------------------------------------------------------------ */

/* The caller's allocator with counters. One per engine; its address is kept by all users. */
typedef struct base_heap {
    beryl_allocator allocator;
    uint64_t bytes, bytes_peak, calls; /* updated atomically: workers allocate too */
} base_heap;

void base_heap_init(base_heap *heap, const beryl_allocator *allocator); /* NULL: malloc */
/* NULL: no memory */
void *base_heap_resize(base_heap *heap, void *memory, size_t old_size, size_t new_size);
void *base_heap_take(base_heap *heap, size_t size);              /* zeroed; NULL: no memory */
void base_heap_give(base_heap *heap, void *memory, size_t size); /* size: as taken. NULL is fine */

/* ---- arena: bump allocation, freed at once. Zeroed memory, 16-byte aligned. */
typedef struct base_arena {
    base_heap *heap; /* borrowed */
    struct base_arena_block *head;
} base_arena;

void base_arena_init(base_arena *arena, base_heap *heap);
void base_arena_fini(base_arena *arena);
/* NULL: no memory or count * size overflows */
void *base_arena_take(base_arena *arena, size_t count, size_t size);
char *base_arena_text(base_arena *arena, const char *text, size_t size); /* NUL-terminated copy */
char *base_arena_print(base_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- vector: `base_vec(T)` is a struct with data, count, capacity. */
#define base_vec(...)           \
    struct {                    \
        __VA_ARGS__ *data;      \
        size_t count, capacity; \
    }
/* Room for `more` further elements; false: no memory (the vector is as it was). */
#define base_vec_reserve(heap, v, more)                                            \
    base_vec_grow((heap), (void **)&(v)->data, (v)->count, &(v)->capacity, (more), \
                  sizeof *(v)->data)
/* Appends a zeroed element and gives its address, or NULL. */
#define base_vec_add(heap, v)                                               \
    (base_vec_reserve(heap, v, 1)                                           \
         ? (__builtin_memset(&(v)->data[(v)->count], 0, sizeof *(v)->data), \
            &(v)->data[(v)->count++])                                       \
         : NULL)
#define base_vec_fini(heap, v)                                                               \
    (base_heap_give((heap), (v)->data, (v)->capacity * sizeof *(v)->data), (v)->data = NULL, \
     (v)->count = (v)->capacity = 0)
bool base_vec_grow(base_heap *heap, void **data, size_t count, size_t *capacity, size_t more,
                   size_t size);

/* ---- string view and string builder */
typedef struct base_view {
    const char *data;
    size_t size;
} base_view;
#define BASE_VIEW(literal) ((base_view){"" literal, sizeof literal - 1})
base_view base_view_of(const char *text); /* NULL: empty */
bool base_view_equal(base_view a, base_view b);
/* Where `p` points after what lay in `from` has moved, by so many bytes. */
const char *base_moved(const char *p, base_view from, ptrdiff_t by);
bool base_view_begins(base_view text, base_view prefix);
bool base_view_ends(base_view text, base_view suffix);
static inline bool base_is_word(char c) { /* an ASCII letter, a digit or an underscore */
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Growing bytes, always NUL-terminated once something was added. After a failed allocation
 * `failed` stays set and adding does nothing: check once at the end. */
typedef struct base_text {
    base_heap *heap;
    char *data;
    size_t size, capacity;
    bool failed;
} base_text;
void base_text_init(base_text *text, base_heap *heap);
void base_text_fini(base_text *text);
void base_text_add(base_text *text, const char *bytes, size_t size);
void base_text_add_view(base_text *text, base_view view);
void base_text_print(base_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void base_text_clear(base_text *text);
/* The bytes, shrunk to size + 1 of capacity, owned by the caller (base_heap_give with size + 1).
 * NULL: failed. */
char *base_text_take(base_text *text, size_t *size);

/* ---- map ------------------------------------------------------------------------------------- */

/* From bytes to u32: open addressing, seeded hash. Keys are borrowed and must outlive the map. */
typedef struct base_map {
    base_heap *heap;
    struct base_map_slot *slots;
    size_t count, capacity;
    uint64_t seed;
} base_map;
void base_map_init(base_map *map, base_heap *heap);
void base_map_fini(base_map *map);
bool base_map_reserve(base_map *map, size_t count);              /* false: no memory */
bool base_map_set(base_map *map, base_view key, uint32_t value); /* replaces; false: no memory */
bool base_map_find(const base_map *map, base_view key, uint32_t *value); /* value may be NULL */
/* Keys that lay in `from` have moved, by so many bytes. */
void base_map_follow(base_map *map, base_view from, ptrdiff_t by);

/* 64 bits, well mixed, the same on every machine */
uint64_t base_hash(const void *data, size_t size, uint64_t seed);

#endif
