/* store_test.c - names to files, in folders made for the purpose. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "format/store.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers */

typedef struct place {
    test *t;
    char root[400];
    base_heap heap;
    base_arena arena;
    uint64_t calls, fail_at;
    char *old[4]; /* the environment as it was */
} place;

static const char *const variables[4] = {"HOME", "XDG_DATA_HOME", "BERYL_MODELS", "OLLAMA_MODELS"};

static void *place_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    place *p = user;
    (void)old_size;
    if (new_size && ++p->calls == p->fail_at) return NULL;
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

/* An empty home of its own for each case. */
static void place_init(place *p, test *t, const char *name) {
    *p = (place){.t = t};
    snprintf(p->root, sizeof p->root, "%s/store-%s", test_scratch(t), name);
    base_heap_init(&p->heap, &(beryl_allocator){place_resize, p});
    base_arena_init(&p->arena, &p->heap);
    for (int i = 0; i < 4; i++) {
        const char *value = getenv(variables[i]);
        p->old[i] = value ? strdup(value) : NULL;
        unsetenv(variables[i]);
    }
    setenv("HOME", p->root, 1);
}

static void place_fini(place *p) {
    base_arena_fini(&p->arena);
    CHECK_INT(p->t, p->heap.bytes, 0);
    for (int i = 0; i < 4; i++) {
        if (p->old[i]) setenv(variables[i], p->old[i], 1);
        else unsetenv(variables[i]);
        free(p->old[i]);
    }
}

/* Writes root/path, its folders included. */
static void put(place *p, const char *path, const char *text) {
    char full[700], folder[700];
    beryl_error error = {0};
    snprintf(full, sizeof full, "%s/%s", p->root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = 0;
    if (base_folder_make(folder, &error) || base_file_write(full, text, strlen(text), &error))
        test_fail(p->t, __FILE__, __LINE__, "%s", error.message);
}

static bool ends(const char *text, const char *tail) {
    return text && base_view_ends(base_view_of(text), base_view_of(tail));
}

/* The status of a search, and what its message must contain. */
static beryl_status find(place *p, const char *name, format_model *found, const char *message) {
    beryl_error error = {0};
    beryl_status status = format_store_find(&p->arena, name, found, &error);
    if (status && (!message || !strstr(error.message, message)))
        test_fail(p->t, __FILE__, __LINE__, "%s: \"%s\" lacks \"%s\"", name, error.message,
                  message ? message : "(no error)");
    if (status) CHECK(p->t, !found->path);
    if (status)
        CHECK(p->t,
              !strchr(error.message, '\n') && strlen(error.message) < sizeof error.message - 1);
    return status;
}

#define HEX8(c) c c c c c c c c
#define HEX64(c) HEX8(HEX8(c))
#define LAYER(type, hex)                                                                \
    "{\"mediaType\":\"application/vnd.ollama.image." type "\",\"digest\":\"sha256:" hex \
    "\",\"size\":70}"
#define MANIFEST(layers)                                           \
    "{\"schemaVersion\":2,\"config\":{\"digest\":\"sha256:" HEX64( \
        "c") "\",\"size\":9},\"layers\":[" layers "]}"
#define LIBRARY "manifests/registry.ollama.ai/library/"

static void put_ollama(place *p, const char *root, const char *name, const char *manifest) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", root, name);
    put(p, path, manifest);
    snprintf(path, sizeof path, "%s/blobs/sha256-" HEX64("a"), root);
    put(p, path, "GGUF");
    snprintf(path, sizeof path, "%s/blobs/sha256-" HEX64("b"), root);
    put(p, path, "GGUF");
    snprintf(path, sizeof path, "%s/blobs/sha256-" HEX64("c"), root);
    put(p, path, "{\"model_family\":\"gemma4\"}");
    snprintf(path, sizeof path, "%s/blobs/sha256-" HEX64("d"), root);
    put(p, path, "{\"temperature\":0.5,\"stop\":[\"x\"]}");
}

/* ---- cases */

static void test_own(test *t) {
    place p;
    format_model found;
    if (test_case(t, "store/path")) {
        place_init(&p, t, "path");
        char path[500];
        put(&p, "my model.gguf", "GGUF");
        snprintf(path, sizeof path, "%s/my model.gguf", p.root);
        CHECK_INT(t, find(&p, path, &found, NULL), BERYL_OK);
        CHECK_TEXT(t, found.path, path);
        CHECK_TEXT(t, found.source, "file");
        CHECK(t, !found.projector && !found.params);
        put(&p, "my model.mmproj.gguf", "GGUF");
        CHECK_INT(t, find(&p, path, &found, NULL), BERYL_OK);
        CHECK(t, ends(found.projector, "/my model.mmproj.gguf"));
        place_fini(&p);
    }
    if (test_case(t, "store/own-folder")) {
        place_init(&p, t, "own");
        put(&p, ".local/share/beryl/models/small.gguf", "GGUF");
        put(&p, ".local/share/beryl/models/big-00001-of-00002.gguf", "GGUF");
        put(&p, ".local/share/beryl/models/big-00002-of-00002.gguf", "GGUF");
        put(&p, "other/small.gguf", "GGUF");
        put(&p, "data/beryl/models/third.gguf", "GGUF");
        CHECK_INT(t, find(&p, "small", &found, NULL), BERYL_OK);
        CHECK(t, ends(found.path, "/.local/share/beryl/models/small.gguf"));
        CHECK_TEXT(t, found.source, "beryl");
        CHECK_TEXT(t, found.name, "small");
        CHECK_INT(t, find(&p, "small.gguf", &found, NULL), BERYL_OK);
        CHECK_INT(t, find(&p, "big", &found, NULL), BERYL_OK);
        CHECK(t, ends(found.path, "/models/big-00001-of-00002.gguf"));
        CHECK_INT(t, find(&p, "third", &found, "no model third"), BERYL_NOT_FOUND);
        char path[500];
        snprintf(path, sizeof path, "%s/data", p.root);
        setenv("XDG_DATA_HOME", path, 1);
        CHECK_INT(t, find(&p, "third", &found, NULL), BERYL_OK);
        snprintf(path, sizeof path, "%s/other", p.root);
        setenv("BERYL_MODELS", path, 1);
        CHECK_INT(t, find(&p, "small", &found, NULL), BERYL_OK);
        CHECK(t, ends(found.path, "/other/small.gguf"));
        place_fini(&p);
    }
    if (test_case(t, "store/unknown-name-says-what-to-do")) {
        place_init(&p, t, "unknown");
        CHECK_INT(t, find(&p, "gemma9", &found, "ollama pull gemma9"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "gemma9", &found, "no download"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "gemma9", &found, ".local/share/beryl/models"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "./x.gguf", &found, "no file ./x.gguf"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "x.gguf", &found, "no file x.gguf"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "a\x1b[2Jb", &found, "no file a?[2Jb"), BERYL_NOT_FOUND);
        char name[3000];
        memset(name, 'n', sizeof name - 1), name[sizeof name - 1] = 0;
        CHECK_INT(t, find(&p, name, &found, "nnn..."), BERYL_NOT_FOUND);
        name[70] = 0;
        CHECK_INT(t, find(&p, name, &found, "ollama pull"), BERYL_NOT_FOUND);
        unsetenv("HOME");
        CHECK_INT(t, find(&p, "gemma9", &found, "$BERYL_MODELS"), BERYL_NOT_FOUND);
        place_fini(&p);
    }
    if (test_case(t, "store/built-in")) {
        place_init(&p, t, "default");
        beryl_error error = {0};
        beryl_status status = format_store_find(&p.arena, NULL, &found, &error);
        CHECK(t, status == BERYL_OK ||
                     (status == BERYL_NOT_FOUND && strstr(error.message, "built-in")));
        if (!status) CHECK(t, base_file_exists(found.path) && !strcmp(found.source, "built-in"));
        CHECK_INT(t, format_store_find(&p.arena, "", &found, &error), status);
        CHECK_INT(t, format_store_find(&p.arena, "default", &found, &error), status);
        place_fini(&p);
    }
}

static void test_ollama(test *t) {
    place p;
    format_model found;
    if (test_case(t, "store/ollama-names")) {
        place_init(&p, t, "names");
        static const char *const files[] = {LIBRARY "gemma4/latest", LIBRARY "gemma4/e2b",
                                            "manifests/registry.ollama.ai/me/mine/v1.0",
                                            "manifests/hf.co/some-one/Gem.GGUF/Q4_K_M",
                                            "manifests/localhost:5000/a/b/c"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            put_ollama(&p, ".ollama/models", files[i],
                       MANIFEST(LAYER("license", HEX64("e")) "," LAYER("model", HEX64("a"))));
        static const char *const right[] = {"gemma4",
                                            "gemma4:latest",
                                            "gemma4:e2b",
                                            "library/gemma4:e2b",
                                            "registry.ollama.ai/library/gemma4:e2b",
                                            "me/mine:v1.0",
                                            "hf.co/some-one/Gem.GGUF:Q4_K_M",
                                            "localhost:5000/a/b:c"};
        for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
            CHECK_INT(t, find(&p, right[i], &found, NULL), BERYL_OK);
            CHECK(t, ends(found.path, "/.ollama/models/blobs/sha256-" HEX64("a")));
            CHECK_TEXT(t, found.source, "ollama");
            CHECK_TEXT(t, found.name, right[i]);
            CHECK(t, !found.projector && !found.params);
        }
        static const char *const wrong[] = {"gemma4:",
                                            ":e2b",
                                            "gemma4:e2b:x",
                                            "/gemma4",
                                            "a//b",
                                            "../gemma4",
                                            "x/../gemma4:e2b",
                                            "../../../../no/such",
                                            "gemma4:..",
                                            "gemma4:../e2b",
                                            "a/b/c/d",
                                            "gem ma",
                                            "gemma4:e2b/",
                                            "gemma4@sha256",
                                            ".gemma4",
                                            "a..b",
                                            "-x",
                                            "hf.co/../library/gemma4:e2b",
                                            "gemma4:e2b\n"};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            CHECK_INT(t, find(&p, wrong[i], &found, "no file"), BERYL_NOT_FOUND);
        CHECK_INT(t, find(&p, "gemma4:e4b", &found, "ollama pull gemma4:e4b"), BERYL_NOT_FOUND);
        char path[500];
        snprintf(path, sizeof path, "%s/elsewhere", p.root);
        setenv("OLLAMA_MODELS", path, 1);
        put_ollama(&p, "elsewhere", LIBRARY "gemma4/e2b", MANIFEST(LAYER("model", HEX64("b"))));
        CHECK_INT(t, find(&p, "gemma4:e2b", &found, NULL), BERYL_OK);
        CHECK(t, ends(found.path, "/elsewhere/blobs/sha256-" HEX64("b")));
        CHECK_INT(t, find(&p, "gemma4", &found, NULL), BERYL_OK); /* in the home still */
        place_fini(&p);
    }
    if (test_case(t, "store/ollama-projector-and-params")) {
        place_init(&p, t, "layers");
        put_ollama(&p, ".ollama/models", LIBRARY "g/latest",
                   MANIFEST(LAYER("params", HEX64("d")) "," LAYER(
                       "projector", HEX64("b")) "," LAYER("model", HEX64("a"))));
        CHECK_INT(t, find(&p, "g", &found, NULL), BERYL_OK);
        CHECK(t, ends(found.path, HEX64("a")));
        CHECK(t, ends(found.projector, HEX64("b")));
        CHECK_TEXT(t, found.params, "{\"temperature\":0.5,\"stop\":[\"x\"]}");
        place_fini(&p);
    }
    if (test_case(t, "store/ollama-manifests-that-are-wrong")) {
        static const struct {
            const char *manifest, *message;
            beryl_status status;
        } rows[] = {
            {"", "damaged", BERYL_BAD_FILE},
            {"[]", "no JSON object", BERYL_BAD_FILE},
            {"{\"layers\":", "damaged", BERYL_BAD_FILE},
            {"{}", "no layers", BERYL_BAD_FILE},
            {"{\"layers\":{}}", "no layers", BERYL_BAD_FILE},
            {"{\"layers\":[1,null,[],{\"mediaType\":7}]}", "no GGUF", BERYL_UNSUPPORTED},
            {MANIFEST(LAYER("tensor", HEX64("a"))), "no GGUF", BERYL_UNSUPPORTED},
            {MANIFEST(LAYER("model", HEX64("a")) "," LAYER("adapter", HEX64("b"))), "adapter",
             BERYL_UNSUPPORTED},
            {MANIFEST(LAYER("model", HEX64("a")) "," LAYER("model", HEX64("b"))), "several files",
             BERYL_UNSUPPORTED},
            {MANIFEST(LAYER("model", HEX64("f"))), "ollama pull bad", BERYL_NOT_FOUND},
            {MANIFEST(LAYER("model", HEX64("a")) "," LAYER("projector", HEX64("f"))),
             "ollama pull bad", BERYL_NOT_FOUND},
            {MANIFEST(LAYER("model", HEX64("a")) "," LAYER("params", HEX64("a"))), "damaged",
             BERYL_BAD_FILE},
            {MANIFEST(LAYER("model", HEX64("A"))), "digest", BERYL_BAD_FILE},
            {MANIFEST(LAYER("model", "../../../../etc/passwd")), "digest", BERYL_BAD_FILE},
            {MANIFEST(LAYER("model", HEX64("a") "a")), "digest", BERYL_BAD_FILE},
            {MANIFEST("{\"mediaType\":\"application/vnd.ollama.image.model\"}"), "digest",
             BERYL_BAD_FILE},
        };
        place_init(&p, t, "wrong");
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            put_ollama(&p, ".ollama/models", LIBRARY "bad/latest", rows[i].manifest);
            CHECK_INT(t, find(&p, "bad", &found, rows[i].message), rows[i].status);
        }
        place_fini(&p);
    }
}

/* Names as "source:name=size " in the order of the listing. */
static void note(void *user, const beryl_model_info *model) {
    char *text = user;
    size_t n = strlen(text);
    if (strcmp(model->source, "built-in"))
        snprintf(text + n, 1000 - n, "%s:%s=%llu ", model->source, model->name,
                 (unsigned long long)model->size);
}

static void make_home(place *p) {
    put(p, ".local/share/beryl/models/small.gguf", "GGUF");
    put(p, ".local/share/beryl/models/small.mmproj.gguf", "GGUF");
    put(p, ".local/share/beryl/models/mmproj-x.gguf", "GGUF");
    put(p, ".local/share/beryl/models/notes.txt", "x");
    put(p, ".local/share/beryl/models/big-00001-of-00002.gguf", "GGUF");
    put(p, ".local/share/beryl/models/big-00002-of-00002.gguf", "GGUF12");
    put(p, ".local/share/beryl/models/folder.gguf/x", "x");
    put_ollama(p, ".ollama/models", LIBRARY "gemma4/e2b",
               MANIFEST(LAYER("model", HEX64("a")) "," LAYER("projector", HEX64("b"))));
    put_ollama(p, ".ollama/models", "manifests/registry.ollama.ai/me/mine/v1",
               MANIFEST(LAYER("model", HEX64("a"))));
    put_ollama(p, ".ollama/models", "manifests/hf.co/a/b/c", MANIFEST(LAYER("model", HEX64("a"))));
    put(p, ".ollama/models/" LIBRARY "broken/latest", "{");
    put(p, ".ollama/models/" LIBRARY "llama/latest",
        "{\"config\":{\"digest\":\"sha256:" HEX64("e") "\"},\"layers\":[" LAYER("model",
                                                                                HEX64("a")) "]}");
    put(p, ".ollama/models/blobs/sha256-" HEX64("e"), "{\"model_family\":\"llama\"}");
    put(p, ".ollama/models/manifests/stray", "x");
}

static void test_list(test *t) {
    place p;
    if (test_case(t, "store/list")) {
        place_init(&p, t, "list");
        make_home(&p);
        char text[1000] = "";
        beryl_error error = {0};
        CHECK_INT(t, format_store_list(&p.heap, note, text, &error), BERYL_OK);
        CHECK_TEXT(t, text,
                   "beryl:big=10 beryl:small=4 ollama:hf.co/a/b:c=70 ollama:gemma4:e2b=140 "
                   "ollama:me/mine:v1=70 ");
        place_fini(&p);
    }
    if (test_case(t, "store/list-of-nothing")) {
        place_init(&p, t, "nothing");
        char text[1000] = "";
        CHECK_INT(t, format_store_list(&p.heap, note, text, NULL), BERYL_OK);
        CHECK_TEXT(t, text, "");
        place_fini(&p);
    }
    if (test_case(t, "store/allocator-fails-at-every-call")) {
        place_init(&p, t, "fails");
        make_home(&p);
        static const char *const names[] = {"small", "big", "gemma4:e2b", "nowhere", NULL};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            for (p.fail_at = 1, p.calls = p.fail_at; p.calls >= p.fail_at && p.fail_at < 500;
                 p.fail_at++) {
                p.calls = 0;
                base_arena arena;
                base_arena_init(&arena, &p.heap);
                format_model found;
                char text[1000] = "";
                beryl_error error = {0};
                beryl_status status = names[i] ? format_store_find(&arena, names[i], &found, &error)
                                               : format_store_list(&p.heap, note, text, &error);
                bool hit = p.calls >= p.fail_at;
                if (hit) CHECK(t, status == BERYL_NO_MEMORY && error.message[0]);
                if (!hit)
                    CHECK_INT(t, status,
                              names[i] && !strcmp(names[i], "nowhere") ? BERYL_NOT_FOUND
                                                                       : BERYL_OK);
                base_arena_fini(&arena);
                CHECK_INT(t, p.heap.bytes, 0);
                if (!hit) break;
            }
        }
        p.fail_at = 0;
        place_fini(&p);
    }
}

void test_store(test *t);
void test_store(test *t) {
    test_own(t);
    test_ollama(t);
    test_list(t);
}
