/* json_test.c - the JSON reader on what RFC 8259 allows, on what it does not, on hostile text and
 * without memory; the writer. */
#include "test.h"
#include "base/json.h"
#include "base/thread.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct document {
    base_heap heap;
    base_arena arena;
    base_json *root;
    beryl_error error;
    long left; /* allocations that still succeed; < 0: all */
} document;

static void *document_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    document *d = user;
    (void)old_size;
    if (!new_size) return free(memory), NULL;
    if (d->left == 0) return NULL;
    if (d->left > 0) d->left--;
    return realloc(memory, new_size);
}

/* Parses a copy of exactly `size` bytes, so that a sanitizer sees a read beyond them. */
static beryl_status document_open(document *d, const char *text, size_t size, long left) {
    *d = (document){.left = left};
    base_heap_init(&d->heap, &(beryl_allocator){document_resize, d});
    base_arena_init(&d->arena, &d->heap);
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, text, size);
    beryl_status status = base_json_parse(&d->arena, copy, size, &d->root, &d->error);
    free(copy);
    return status;
}

static void document_close(test *t, document *d) {
    base_arena_fini(&d->arena);
    CHECK_INT(t, d->heap.bytes, 0);
}

/* What the writer makes of it, or "" if it is refused. */
static const char *rewritten(test *t, const char *text, size_t size, char *out, size_t capacity) {
    document d;
    out[0] = 0;
    if (!document_open(&d, text, size, -1)) {
        base_text written;
        base_text_init(&written, &d.heap);
        base_json_write(&written, d.root);
        snprintf(out, capacity, "%s", written.data);
        base_text_fini(&written);
    }
    document_close(t, &d);
    return out;
}

static void test_accepts(test *t) {
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"null", "null"},
        {" \t\r\n true \n", "true"},
        {"false", "false"},
        {"0", "0"},
        {"-0", "-0"},
        {"-12.50e+03", "-12.50e+03"},
        {"1E5", "1E5"},
        {"\"\"", "\"\""},
        {"[]", "[]"},
        {"[ ]", "[]"},
        {"{}", "{}"},
        {"{ }", "{}"},
        {"[1,[2,[]],{\"a\":{}},null]", "[1,[2,[]],{\"a\":{}},null]"},
        {" { \"a\" : [ 1 , 2 ] , \"b\" : { \"c\" : true } } ", "{\"a\":[1,2],\"b\":{\"c\":true}}"},
        {"{\"\":1,\"\":2}", "{\"\":1,\"\":2}"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
        {"\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\"\\u0000\\u001f\\u007f\"", "\"\\u0000\\u001f\x7f\""},
        {"\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {"\"\\ud800\\udc00\\udbff\\udfff\"", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
    };
    char out[200];
    if (test_case(t, "json/what-the-grammar-allows"))
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            CHECK_TEXT(t, rewritten(t, rows[i].text, strlen(rows[i].text), out, sizeof out),
                       rows[i].want);
}

static void test_refuses(test *t) {
    static const struct {
        const char *text;
        size_t at;
    } rows[] = {
        {"", 0},
        {"  ", 2},
        {"nul", 0},
        {"nullx", 4},
        {"True", 0},
        {"[1,]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"[1", 0},
        {"[", 0},
        {"[[1]", 0},
        {"]", 0},
        {"[1}", 2},
        {"{\"a\":1", 0},
        {"{\"a\"}", 4},
        {"{\"a\" 1}", 5},
        {"{a:1}", 1},
        {"{1:1}", 1},
        {"{\"a\":1,}", 7},
        {"{\"a\":}", 5},
        {"{", 0},
        {"1 2", 2},
        {"01", 0},
        {"-01", 0},
        {"+1", 0},
        {"-", 0},
        {".5", 0},
        {"1.", 2},
        {"1.e1", 2},
        {"1e", 2},
        {"1e+", 3},
        {"0x10", 1},
        {"NaN", 0},
        {"Infinity", 0},
        {"1e400", 0},
        {"-1e99999999999999999999", 0},
        {"'a'", 0},
        {"\"a", 0},
        {"\"a\\", 0},
        {"\"a\\\"", 0},
        {"\"a\nb\"", 2},
        {"\"a\tb\"", 2},
        {"\"\\x41\"", 1},
        {"\"\\u12\"", 1},
        {"\"\\u12g4\"", 1},
        {"\"\\ud800\"", 1},
        {"\"\\ud800x\"", 1},
        {"\"\\ud800\\n\"", 1},
        {"\"\\ud800\\ud800\"", 1},
        {"\"\\udc00\"", 1},
        {"\"x\xff\"", 2},
        {"\"\xc0\x80\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\"\xc3\"", 1},
        {"\xef\xbb\xbf[]", 0},
        {"[1]//", 3},
        {"/**/1", 0},
        {"[\"a\":1]", 4},
        {"\"a\"\"b\"", 3},
        {"\f1", 0},
    };
    if (test_case(t, "json/what-the-grammar-does-not-allow")) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            document d;
            beryl_status status = document_open(&d, rows[i].text, strlen(rows[i].text), -1);
            if (status != BERYL_BAD_INPUT || d.error.at != rows[i].at || d.root)
                test_fail(t, __FILE__, __LINE__, "%s: status %d at %d, not %d", rows[i].text,
                          (int)status, (int)d.error.at, (int)rows[i].at);
            document_close(t, &d);
        }
    }
    if (test_case(t, "json/nul-bytes-are-no-space")) {
        document d;
        CHECK_INT(t, document_open(&d, "1\0", 2, -1), BERYL_BAD_INPUT);
        document_close(t, &d);
        CHECK_INT(t, document_open(&d, "\"a\0b\"", 5, -1), BERYL_BAD_INPUT);
        document_close(t, &d);
    }
    if (test_case(t, "json/message-has-line-and-column")) {
        document d;
        CHECK_INT(t, document_open(&d, "{\n  \"a\": 1,\n  b\n}", 17, -1), BERYL_BAD_INPUT);
        CHECK_TEXT(t, d.error.message, "JSON, line 3, column 3: a key in quotes is expected");
        CHECK_INT(t, d.error.at, 14);
        document_close(t, &d);
    }
}

static void test_numbers(test *t) {
    static const struct {
        const char *text;
        double want;
    } rows[] = {
        {"0", 0},
        {"-0.0e5", -0.0},
        {"1", 1},
        {"0.1", 0.1},
        {"-3.25e2", -325},
        {"123456789012345678", 123456789012345678.0},
        {"9007199254740993", 9007199254740992.0}, /* a tie: to even */
        {"9007199254740993.00000000000000000000000000000000001", 9007199254740994.0},
        {"1.7976931348623157e308", 0x1.fffffffffffffp1023},
        {"4.9406564584124654e-324", 0x1p-1074},
        {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
        {"1e-400", 0},
        {"1e-99999999999999999999", 0},
        {"0e99999999999999999999", 0},
        {"0.000000000000000000000000000001e30", 1},
        {"1000000000000000000000000000000e-30", 1},
    };
    if (test_case(t, "json/numbers-rounded-to-nearest")) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            document d;
            CHECK_INT(t, document_open(&d, rows[i].text, strlen(rows[i].text), -1), BERYL_OK);
            if (d.root && (d.root->number != rows[i].want ||
                           signbit(d.root->number) != signbit(rows[i].want)))
                test_fail(t, __FILE__, __LINE__, "%s gave %.17g", rows[i].text, d.root->number);
            if (d.root) CHECK_TEXT(t, d.root->text.data, rows[i].text);
            document_close(t, &d);
        }
    }
    if (test_case(t, "json/numbers-as-strtod-reads-them")) {
        base_random random = {5};
        for (int i = 0; i < 2000; i++) {
            char text[64];
            uint64_t bits = base_random_next(&random);
            double want;
            memcpy(&want, &bits, sizeof want);
            if (!isfinite(want)) continue;
            snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.9g", want);
            document d;
            CHECK_INT(t, document_open(&d, text, strlen(text), -1), BERYL_OK);
            CHECK(t, d.root && d.root->number == strtod(text, NULL));
            document_close(t, &d);
        }
    }
    if (test_case(t, "json/numbers-with-a-million-digits")) {
        enum { LENGTH = 1000000 };
        char *text = malloc(LENGTH + 20);
        if (!text) abort();
        /* 0.000...0001e1000000 */
        memset(text, '0', LENGTH);
        memcpy(text, "0.", 2);
        size_t size = LENGTH + (size_t)snprintf(text + LENGTH, 20, "1e%d", LENGTH - 1);
        document d;
        CHECK_INT(t, document_open(&d, text, size, -1), BERYL_OK);
        CHECK(t, d.root && d.root->number == 1);
        document_close(t, &d);
        /* 333...333e-999999 */
        memset(text, '3', LENGTH);
        size = LENGTH + (size_t)snprintf(text + LENGTH, 20, "e-%d", LENGTH);
        CHECK_INT(t, document_open(&d, text, size, -1), BERYL_OK);
        CHECK(t, d.root && d.root->number == 1.0 / 3);
        document_close(t, &d);
        free(text);
    }
    if (test_case(t, "json/numbers-do-not-depend-on-the-locale")) {
        static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
        const char *set = NULL;
        for (size_t i = 0; i < 4 && !set; i++) set = setlocale(LC_NUMERIC, names[i]);
        if (!set) {
            test_skip(t, "no locale with a decimal comma is installed");
        } else {
            document d;
            CHECK_INT(t, document_open(&d, "2.5", 3, -1), BERYL_OK);
            CHECK(t, d.root && d.root->number == 2.5);
            document_close(t, &d);
            setlocale(LC_NUMERIC, "C");
        }
    }
}

static void test_shape(test *t) {
    document d;
    if (test_case(t, "json/tree-and-find")) {
        const char *text = "{\"a\": [1, \"x\\u0000y\", {}], \"b\": false, \"a\": {\"c\": 2.5}}";
        CHECK_INT(t, document_open(&d, text, strlen(text), -1), BERYL_OK);
        const base_json *root = d.root, *first = root->child;
        CHECK(t, root->kind == JSON_OBJECT && root->n_child == 3 && !root->next && root->at == 0);
        CHECK(t, first->kind == JSON_ARRAY && first->n_child == 3 &&
                     base_view_equal(first->key, BASE_VIEW("a")));
        CHECK_INT(t, first->at, 6);
        CHECK(t, base_view_equal(first->child->next->text, BASE_VIEW("x\0y")));
        CHECK_INT(t, first->child->next->at, 10);
        CHECK(t, !first->child->next->next->child && !first->child->next->next->next);
        const base_json *last = base_json_find(root, "a");
        CHECK(t, last && last->kind == JSON_OBJECT && base_json_find(last, "c")->number == 2.5);
        CHECK(t, !base_json_find(root, "c") && !base_json_find(first, "a") &&
                     !base_json_find(NULL, "a"));
        document_close(t, &d);
    }
    if (test_case(t, "json/depth-64-and-no-more")) {
        for (size_t depth = 63; depth <= 66; depth++) {
            for (int object = 0; object < 2; object++) {
                char text[400] = "";
                for (size_t i = 1; i < depth; i++) strcat(text, object ? "{\"\":" : "[");
                strcat(text, object ? "{" : "[");
                for (size_t i = 0; i < depth; i++) strcat(text, object ? "}" : "]");
                beryl_status want = depth <= 64 ? BERYL_OK : BERYL_BAD_INPUT;
                CHECK_INT(t, document_open(&d, text, strlen(text), -1), want);
                if (want) CHECK_INT(t, d.error.at, object ? 64 * 4 : 64);
                document_close(t, &d);
            }
        }
    }
    if (test_case(t, "json/hostile-nesting-is-cheap")) {
        enum { LENGTH = 1 << 20 };
        char *text = malloc(LENGTH);
        if (!text) abort();
        memset(text, '[', LENGTH);
        CHECK_INT(t, document_open(&d, text, LENGTH, -1), BERYL_BAD_INPUT);
        CHECK(t, d.heap.bytes_peak < 100000);
        document_close(t, &d);
        memset(text, '"', LENGTH);
        CHECK_INT(t, document_open(&d, text, LENGTH, -1), BERYL_BAD_INPUT);
        document_close(t, &d);
        free(text);
    }
}

static const char sample[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a \\u00e9\\n\\ud83d\\ude00 "
    "\xe2\x82\xac\"}, {\"role\": "
    "\"tool\", \"n\": [-1.5e3, 0, true, false, null, [], {}]}], \"think\": true}";

static void test_hostile(test *t) {
    document d;
    char out[400];
    if (test_case(t, "json/cut-anywhere")) {
        for (size_t size = 0; size < sizeof sample - 1; size++) {
            CHECK_INT(t, document_open(&d, sample, size, -1), BERYL_BAD_INPUT);
            CHECK(t, d.error.at <= size && d.error.message[0]);
            document_close(t, &d);
        }
    }
    if (test_case(t, "json/bytes-changed-anywhere")) {
        base_random random = {9};
        char text[sizeof sample], again[400];
        for (int i = 0; i < 4000; i++) {
            memcpy(text, sample, sizeof sample);
            for (int n = 0; n < 1 + i % 3; n++) {
                size_t at = (size_t)(base_random_next(&random) % (sizeof sample - 1));
                static const char likely[] = "\"\\{}[]:,u0d8-e. \x00\xff\xe2";
                text[at] = likely[base_random_next(&random) % sizeof likely];
            }
            /* What is accepted can be written and read again, and is then the same. */
            rewritten(t, text, sizeof sample - 1, out, sizeof out);
            if (out[0]) CHECK_TEXT(t, rewritten(t, out, strlen(out), again, sizeof again), out);
        }
    }
    if (test_case(t, "json/no-memory-at-the-nth-call")) {
        char text[20000];
        size_t size = 0;
        text[size++] = '[';
        while (size < sizeof text - 300) size += (size_t)snprintf(text + size, 300, "%s,", sample);
        text[size - 1] = ']';
        long n = 0;
        for (;; n++) {
            beryl_status status = document_open(&d, text, size, n);
            document_close(t, &d);
            if (!status) break;
            CHECK_INT(t, status, BERYL_NO_MEMORY);
            CHECK_INT(t, d.error.code, BERYL_NO_MEMORY);
            if (test_failed(t) || n > 100) break;
        }
        CHECK(t, n >= 4);
    }
}

static void test_write(test *t) {
    static const struct {
        const char *bytes, *want;
    } rows[] = {
        {"", "\"\""},
        {"a\"b\\c/\b\f\n\r\t\x01\x1f\x7f", "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
#define BROKEN "\xef\xbf\xbd"
        {"x\xffy", "\"x" BROKEN "y\""},
        {"\xe2\x82", "\"" BROKEN "\""},       /* cut off: one mark */
        {"\xf0\x9f\x98z", "\"" BROKEN "z\""}, /* three bytes that could have gone on: one */
        {"\xed\xa0\x80",
         "\"" BROKEN BROKEN BROKEN "\""}, /* a surrogate: none of its bytes belongs to another */
        {"\xc0\xaf", "\"" BROKEN BROKEN "\""},
        {"\xe2\xe2\x82\xac", "\"" BROKEN "\xe2\x82\xac\""},
        {"\xf4\x90\x80\x80", "\"" BROKEN BROKEN BROKEN BROKEN "\""},
    };
    base_heap heap;
    base_text out;
    base_heap_init(&heap, NULL);
    if (test_case(t, "json/write-string-escapes-and-mends")) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            base_text_init(&out, &heap);
            base_json_write_string(&out, rows[i].bytes, strlen(rows[i].bytes));
            CHECK_TEXT(t, out.data, rows[i].want);
            base_text_fini(&out);
        }
        base_text_init(&out, &heap);
        base_json_write_string(&out, NULL, 0);
        base_json_write_string(&out, "a\0b", 3);
        CHECK_TEXT(t, out.data, "\"\"\"a\\u0000b\"");
        base_text_fini(&out);
    }
    if (test_case(t, "json/write-any-bytes-gives-valid-json")) {
        base_random random = {3};
        for (int i = 0; i < 2000; i++) {
            char bytes[12];
            size_t size = (size_t)(base_random_next(&random) % sizeof bytes);
            static const unsigned char likely[] = {0,    0x22, 0x5c, 0x41, 0x80, 0xbf,
                                                   0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
            for (size_t j = 0; j < size; j++)
                bytes[j] = (char)likely[base_random_next(&random) % sizeof likely];
            base_text_init(&out, &heap);
            base_json_write_string(&out, bytes, size);
            document d;
            CHECK_INT(t, document_open(&d, out.data, out.size, -1), BERYL_OK);
            document_close(t, &d);
            base_text_fini(&out);
        }
    }
}

void test_json(test *t);
void test_json(test *t) {
    test_accepts(t);
    test_refuses(t);
    test_numbers(t);
    test_shape(t);
    test_hostile(t);
    test_write(t);
}
