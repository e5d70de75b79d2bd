/* states_test.c - states of users' graphs in safetensors files: there and back bit for bit, from
 * files that are laid out here by the format's description, and what is refused. */
#include "test.h"

#include "beryl_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = 15, B = 3, FILE_MAX = 2048 };

typedef struct memory { /* a sink, and a source of what it took */
    uint8_t data[FILE_MAX];
    size_t size;
    bool hesitates, pending; /* every second call is answered with PENDING */
    int fails;               /* at this call; 0: never */
    int calls, closed;       /* closed: 2: whole */
} memory;

static bool later(memory *m) {
    m->pending = m->hesitates && !m->pending;
    return m->pending;
}

static beryl_status memory_write(void *user, const void *data, size_t size) {
    memory *m = user;
    if (later(m)) return BERYL_PENDING;
    if (++m->calls == m->fails || size > FILE_MAX - m->size) return BERYL_IO;
    memcpy(m->data + m->size, data, size);
    m->size += size;
    return BERYL_OK;
}

static beryl_status memory_close(void *user, bool whole) {
    ((memory *)user)->closed = 1 + whole;
    return BERYL_OK;
}

static beryl_status memory_read(void *user, uint64_t offset, void *to, size_t size) {
    memory *m = user;
    if (later(m)) return BERYL_PENDING;
    if (++m->calls == m->fails) return BERYL_IO;
    memcpy(to, m->data + offset, size);
    return BERYL_OK;
}

static void memory_done(void *user) {
    ((memory *)user)->closed = 1;
}

typedef struct rig {
    beryl_graph *g;
    beryl_value w, b;
    long long held;
} rig;

static void *resize(void *user, void *held, size_t old_size, size_t new_size) {
    *(long long *)user += (long long)new_size - (long long)old_size;
    if (new_size) return realloc(held, new_size);
    free(held);
    return NULL;
}

/* States "b" I32 [3] and "w" F32 [1, 3, 1, 5, 1]. kind 1: both "w"; 2: a third one, Q8_0. */
static void rig_open(test *t, rig *r, const char *device, int kind) {
    static const uint32_t w[] = {1, 3, 1, 5, 1}, b[] = {B}, cache[] = {1, 1, 1, 32};
    *r = (rig){0};
    const beryl_graph_options options = {
        .size = sizeof options, .device = device, .allocator = {resize, &r->held}};
    beryl_error error = {0};
    beryl_status status = beryl_graph_open(&options, &r->g, &error);
    if (status == BERYL_OK) {
        r->w = beryl_graph_state(r->g, "w", BERYL_TYPE_F32, 5, w);
        r->b = beryl_graph_state(r->g, kind == 1 ? "w" : "b", BERYL_TYPE_I32, 1, b);
        if (kind == 2) beryl_graph_state(r->g, "cache", BERYL_TYPE_Q8_0, 4, cache);
        beryl_graph_output(r->g, beryl_graph_scale(r->g, r->w, 2), "y");
        while ((status = beryl_graph_compile(r->g, &error)) == BERYL_PENDING) {}
    }
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    if (status != BERYL_OK) beryl_graph_close(r->g), r->g = NULL;
}

static void rig_close(test *t, rig *r) {
    beryl_graph_close(r->g);
    CHECK_INT(t, r->held, 0);
}

static void set(test *t, rig *r, uint32_t seed) {
    uint32_t w[W], b[B];
    for (uint32_t i = 0; i < W; i++) w[i] = seed * 2654435761u * (i + 1); /* NaN too */
    w[1] = 0x7fc12345, w[2] = 0x80000000;
    for (uint32_t i = 0; i < B; i++) b[i] = seed * 40503u + i;
    CHECK_INT(t, beryl_graph_state_set(r->g, r->w, w, sizeof w, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_state_set(r->g, r->b, b, sizeof b, NULL), BERYL_OK);
}

/* Are they those that `set` made? */
static bool has(rig *r, uint32_t seed) {
    uint32_t w[W], b[B];
    if (beryl_graph_state_get(r->g, r->w, w, sizeof w, NULL) != BERYL_OK ||
        beryl_graph_state_get(r->g, r->b, b, sizeof b, NULL) != BERYL_OK)
        return false;
    bool same = w[1] == 0x7fc12345 && w[2] == 0x80000000;
    for (uint32_t i = 3; i < W; i++) same = same && w[i] == seed * 2654435761u * (i + 1);
    for (uint32_t i = 0; i < B; i++) same = same && b[i] == seed * 40503u + i;
    return same;
}

static beryl_status save(rig *r, memory *m, beryl_error *error) {
    const beryl_sink sink = {m, memory_write, memory_close};
    return beryl_graph_states_save_to(r->g, &sink, error);
}

static beryl_status load(rig *r, memory *m, beryl_error *error) {
    const beryl_source source = {m->size, m, memory_read, memory_done};
    return beryl_graph_states_load_from(r->g, &source, error);
}

/* A file of a header and so many bytes after it. */
static void made(memory *m, const char *header, size_t more) {
    const size_t n = strlen(header);
    memset(m, 0, sizeof *m);
    m->data[0] = (uint8_t)n, m->data[1] = (uint8_t)(n >> 8);
    memcpy(m->data + 8, header, n);
    for (size_t i = 0; i < more; i++) m->data[8 + n + i] = (uint8_t)(i * 7 + 1);
    m->size = 8 + n + more;
}

/* Five of 16 bits: their bytes are no whole words. */
static void halves_of_words(test *t, const char *device) {
    static const int16_t first[] = {-32768, 32767, -1, 0, 258}, other[5] = {1, 2, 3, 4, 5};
    const beryl_graph_options options = {.size = sizeof options, .device = device};
    static memory m;
    rig r = {0};
    beryl_error error = {0};
    int16_t got[5] = {0};
    beryl_status status = beryl_graph_open(&options, &r.g, &error);
    if (status == BERYL_OK) {
        r.w = beryl_graph_state(r.g, "m", BERYL_TYPE_I16, 1, (const uint32_t[]){5});
        beryl_graph_output(r.g, beryl_graph_cast(r.g, r.w, BERYL_TYPE_F32, false), "y");
        while ((status = beryl_graph_compile(r.g, &error)) == BERYL_PENDING) {}
    }
    m = (memory){.size = 0};
    if (status == BERYL_OK) status = beryl_graph_state_set(r.g, r.w, first, sizeof first, &error);
    if (status == BERYL_OK) status = save(&r, &m, &error);
    if (status == BERYL_OK) status = beryl_graph_state_set(r.g, r.w, other, sizeof other, &error);
    if (status == BERYL_OK) status = load(&r, &m, &error);
    if (status == BERYL_OK) status = beryl_graph_state_get(r.g, r.w, got, sizeof got, &error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    else CHECK(t, !memcmp(got, first, sizeof got));
    beryl_graph_close(r.g);
}

static void there_and_back(test *t, const char *device) {
    rig r;
    beryl_error error = {0};
    char path[300];
    rig_open(t, &r, device, 0);
    if (!r.g) return;
    snprintf(path, sizeof path, "%s/states.safetensors", test_scratch(t));
    set(t, &r, 5);
    if (beryl_graph_states_save(r.g, path, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    set(t, &r, 6);
    CHECK(t, has(&r, 6) && !has(&r, 5));
    if (beryl_graph_states_load(r.g, path, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    CHECK(t, has(&r, 5));
    static memory m;
    for (int hesitates = 0; hesitates < 2; hesitates++) {
        m = (memory){.hesitates = hesitates};
        CHECK_INT(t, save(&r, &m, NULL), BERYL_OK);
        CHECK_INT(t, m.closed, 2);
        set(t, &r, 7);
        CHECK_INT(t, load(&r, &m, NULL), BERYL_OK);
        CHECK_INT(t, m.closed, 1);
        CHECK(t, has(&r, 5));
    }
    rig_close(t, &r);
}

#define DIMS "\"shape\":[1,3,1,5,1],\"data_offsets\":[0,60]}"
#define IS_B "\"b\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[60,72]}"
#define IS_W "\"w\":{\"dtype\":\"F32\"," DIMS

static void from_others(test *t) {
    static memory m;
    rig r;
    uint8_t w[4 * W], b[4 * B];
    beryl_error error = {0};
    rig_open(t, &r, "reference", 0);
    made(&m, "{" IS_W "," IS_B "}", 72);
    if (load(&r, &m, &error) != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    CHECK_INT(t, beryl_graph_state_get(r.g, r.w, w, sizeof w, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_state_get(r.g, r.b, b, sizeof b, NULL), BERYL_OK);
    for (int i = 0; i < 72; i++) CHECK_INT(t, i < 60 ? w[i] : b[i - 60], (i * 7 + 1) & 255);
    rig_close(t, &r);
}

static void refuses(test *t) {
    static const struct {
        const char *header;
        size_t more;
        beryl_status status;
        const char *message;
    } files[] = {
        {"{" IS_W "}", 60, BERYL_MISUSE, "the file has no state 'b'"},
        {"{" IS_W "," IS_B ",\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[72,76]}}", 76,
         BERYL_MISUSE, "'x' of the file is no state of this graph"},
        {"{\"w\":{\"dtype\":\"I32\"," DIMS "," IS_B "}", 72, BERYL_MISUSE,
         "state 'w' has another type or shape"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3,5],\"data_offsets\":[0,60]}," IS_B "}", 72,
         BERYL_MISUSE, "state 'w' has another type or shape"},
        {"{\"w\":{\"dtype\":\"F64\"," DIMS "," IS_B "}", 72, BERYL_UNSUPPORTED, "'w' is F64"},
        {"{" IS_W "," IS_B "}", 71, BERYL_BAD_FILE, "'b': its bytes are not inside the file"},
        {"{" IS_W ",\"b\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[56,68]}}", 72,
         BERYL_BAD_FILE, "'w' lies over 'b'"},
        {"{" IS_W "," IS_W "," IS_B "}", 72, BERYL_BAD_FILE, "'w'"},
        {"{" IS_W ",\"b\":{\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[60,72]}}", 72,
         BERYL_BAD_FILE, "its bytes are not those of its shape"},
        {"{" IS_W "," IS_B, 72, BERYL_BAD_FILE, "JSON"},
        {"[]", 0, BERYL_BAD_FILE, "JSON"},
        {"", 0, BERYL_BAD_FILE, "a safetensors file of 8 bytes"},
    };
    static memory m, saved;
    rig r;
    rig_open(t, &r, "reference", 0);
    set(t, &r, 9);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        beryl_error error = {0};
        made(&m, files[i].header, files[i].more);
        CHECK_INT(t, load(&r, &m, &error), files[i].status);
        if (!strstr(error.message, files[i].message))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, files[i].message);
        CHECK_INT(t, m.closed, 1);
    }
    CHECK_INT(t, save(&r, &saved, NULL), BERYL_OK);
    for (m = saved; m.size-- > 0;) CHECK(t, load(&r, &m, NULL) != BERYL_OK); /* every cut */
    for (int fails = 1; fails <= 3; fails++) {
        m = (memory){.fails = fails};
        CHECK_INT(t, save(&r, &m, NULL), BERYL_IO);
        CHECK_INT(t, m.closed, 1);
    }
    m = saved, m.fails = 1, m.calls = 0;
    CHECK_INT(t, load(&r, &m, NULL), BERYL_IO);
    const beryl_source large = {UINT64_C(1) << 40, &m, memory_read, memory_done};
    CHECK_INT(t, beryl_graph_states_load_from(r.g, &large, NULL), BERYL_BAD_FILE);
    CHECK_INT(t, beryl_graph_states_load(r.g, "/no/such/file", NULL), BERYL_NOT_FOUND);
    CHECK(t, has(&r, 9)); /* nothing has changed */
    rig_close(t, &r);
}

/* A byte of the header is another one: refused with a reason, or the states are as before. */
static void broken(test *t) {
    static memory m, saved;
    rig r;
    rig_open(t, &r, "reference", 0);
    set(t, &r, 3);
    CHECK_INT(t, save(&r, &saved, NULL), BERYL_OK);
    for (size_t i = 0; i < saved.size - 4 * (W + B) && !test_failed(t); i++)
        for (int k = 0; k < 6; k++) {
            beryl_error error = {0};
            m = saved;
            m.data[i] = (uint8_t)(k < 3 ? saved.data[i] ^ 1 << 3 * k : "\",9"[k - 3]);
            if (load(&r, &m, &error) != BERYL_OK) CHECK(t, error.message[0]);
            else if (m.data[i] != saved.data[i] && !has(&r, 3)) set(t, &r, 3);
        }
    CHECK(t, has(&r, 3));
    rig_close(t, &r);
}

static void refused_graphs(test *t) {
    static memory m;
    beryl_error error = {0};
    rig r;
    rig_open(t, &r, "reference", 1);
    CHECK_INT(t, save(&r, &m, &error), BERYL_MISUSE);
    CHECK(t, strstr(error.message, "two states are named 'w'") && m.closed == 1 && !m.size);
    rig_close(t, &r);
    rig_open(t, &r, "reference", 2);
    CHECK_INT(t, save(&r, &m, &error), BERYL_UNSUPPORTED);
    CHECK(t, strstr(error.message, "state 'cache' is Q8_0"));
    rig_close(t, &r);
    beryl_graph *g = NULL;
    const beryl_sink sink = {&m, memory_write, memory_close};
    const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
    CHECK_INT(t, beryl_graph_open(&options, &g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_states_save_to(g, &sink, &error), BERYL_MISUSE);
    CHECK(t, strstr(error.message, "needs a compiled graph"));
    CHECK_INT(t, beryl_graph_states_save_to(NULL, &sink, NULL), BERYL_MISUSE);
    CHECK_INT(t, beryl_graph_states_save(g, NULL, NULL), BERYL_MISUSE);
    CHECK_INT(t, beryl_graph_states_load(NULL, "x", NULL), BERYL_MISUSE);
    CHECK_INT(t, beryl_graph_states_load_from(g, NULL, NULL), BERYL_MISUSE);
    beryl_graph_close(g);
}

void test_states(test *t);
void test_states(test *t) {
    static const char *const devices[] = {"reference", "host", "webgpu:software"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (test_case(t, "states/there-and-back-on-%s", devices[i])) there_and_back(t, devices[i]);
        if (test_case(t, "states/halves-of-words-on-%s", devices[i]))
            halves_of_words(t, devices[i]);
    }
    if (test_case(t, "states/from-a-file-of-others")) from_others(t);
    if (test_case(t, "states/refuses-files")) refuses(t);
    if (test_case(t, "states/broken-headers")) broken(t);
    if (test_case(t, "states/refuses-graphs")) refused_graphs(t);
}
