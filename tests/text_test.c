/* text_test.c - tokenizer and detokenizer: the real vocabulary's vectors, awkward texts, hostile
 * vocabularies. */
#include "base/json.h"
#include "base/file.h"
#include "base/thread.h"
#include "text_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#define SLOW 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOW 20
#endif
#endif
#ifndef SLOW
#define SLOW 1 /* sanitizers are slow: limits of time times this */
#endif

/* Seconds of the processor: what else the machine does takes none of them. */
static double spent(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void ids_print(base_text *out, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) base_text_print(out, i ? " %d" : "%d", (int)ids[i]);
    base_text_add(out, "", 0);
}

/* Checks that `text` becomes `want`, ids in decimal. */
static void check_ids(test *t, const text_make *m, base_view text, text_special_mode mode,
                      const char *want) {
    text_ids ids = {0};
    base_heap heap;
    base_text got;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_text_init(&got, &heap);
    if (text_encode(m->tok, text.data, text.size, mode, &ids, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    ids_print(&got, ids.data, ids.count);
    if (strcmp(got.data, want))
        test_fail(t, __FILE__, __LINE__, "\"%.*s\" is %s, not %s", (int)text.size, text.data,
                  got.data, want);
    base_text_fini(&got);
    text_ids_fini(m->tok, &ids);
}

/* ---- the real vocabulary --------------------------------------------------------------------- */

/* GEMMA4's tokenizer vectors: those that public test suites generated with HF tokenizers. */
static const struct {
    const char *text, *ids;
} vectors[] = {
    {"hello", "23391"},
    {"hello world", "23391 1902"},
    {"Hello, World!", "9259 236764 4109 236888"},
    {" hello", "29104"},
    {"  hello", "138 23391"},
    {"hello  world", "23391 138 12392"},
    {"   ", "139"},
    {"      ", "142"},
    {" leading spaces", "5830 9952"},
    {"multiple    spaces", "43819 140 35220"},
    {"\n\n", "108"},
    {"\t\t", "255969"},
    {"12345", "236770 236778 236800 236812 236810"},
    {"3.14159", "236800 236761 236770 236812 236770 236810 236819"},
    {"aaaaaa", "50354 9236"},
    {"café résumé naïve", "123125 236859 118515 120362"},
    {"L'élève a mangé", "236798 236789 161654 496 14695 236859"},
    {"über Straße Größe", "28223 80176 112880"},
    {"Äpfel", "239122 22744 535"},
    {"ąęśćżźółń", "237198 237202 14732 237277 238992 24875 238041"},
    {"Zażółć gęślą jaźń", "236953 40512 24875 237289 549 237202 62081 237198 4828 238992 238041"},
    {"ĀāĂăĄą", "241920 237448 241645 237106 243514 237198"},
    {"你好世界", "144626 12811"},
    {"こんにちは", "85141"},
    {"hello ąęść world café 你好", "23391 236743 237198 237202 14732 1902 33443 43758 237389"},
    {"hello 👋 world", "23391 155818 1902"},
    {"def foo(x): return x + 1", "2063 46293 236769 236781 1473 994 1123 900 236743 236770"},
    {"{\"key\": \"value\"}", "14937 2478 1083 623 2394 25938"},
    {"    Hello\n    Hello", "140 9259 107 140 9259"},
    {"<|turn>user\nHi<turn|>\n<|turn>model\n", "105 2364 107 10979 106 107 105 4368 107"},
    {"<|turn>user\nWhat is 2+2?<turn|>\n<|turn>model\n",
     "105 2364 107 3689 563 236743 236778 236862 236778 236881 106 107 105 4368 107"},
    {"<|tool_call>call:bash{command:<|\"|>ls -la<|\"|>}<tool_call|>",
     "48 6639 236787 42422 236782 7674 236787 52 5629 753 2149 52 236783 49"},
};

static void test_real_cases(test *t, const text_make *m) {
    base_heap heap;
    base_arena arena;
    char *data = NULL;
    size_t size = 0, n_wrong = 0, index = 0;
    base_json *cases = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    if (base_file_read(&heap, test_data(t, "vocab/cases.json"), 1 << 24, &data, &size, &error) ||
        base_json_parse(&arena, data, size, &cases, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (const base_json *one = cases ? cases->child : NULL; one; one = one->next, index++) {
        base_view text = base_json_find(one, "text")->text;
        const base_json *want = base_json_find(one, "ids");
        text_ids ids = {0};
        base_text back;
        base_text_init(&back, &heap);
        CHECK_INT(t, text_encode(m->tok, text.data, text.size, TEXT_USER_DEFINED, &ids, &error),
                  BERYL_OK);
        bool equal = ids.count == want->n_child;
        size_t i = 0;
        for (const base_json *id = want->child; id && equal; id = id->next, i++)
            equal = ids.data[i] == (int32_t)id->number;
        if (!equal && n_wrong++ < 5)
            test_fail(t, __FILE__, __LINE__, "case %zu has other ids: \"%.*s\"", index,
                      (int)text.size, text.data);
        /* and back: U+2581 comes back as a blank, as it went in as one */
        CHECK_INT(t, text_decode(m->tok, ids.data, ids.count, true, &back, &error), BERYL_OK);
        if (!strstr(text.data, "\xE2\x96\x81") &&
            !base_view_equal((base_view){back.data, back.size}, text))
            test_fail(t, __FILE__, __LINE__, "case %zu does not come back: \"%s\"", index,
                      back.data);
        base_text_fini(&back);
        text_ids_fini(m->tok, &ids);
    }
    CHECK_INT(t, index, 800);
    CHECK_INT(t, n_wrong, 0);
    base_heap_give(&heap, data, size + 1);
    base_arena_fini(&arena);
}

static void test_real(test *t) {
    text_make m;
    if (test_case(t, "text/real-vocabulary-vectors") && text_make_real(t, &m)) {
        for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
            check_ids(t, &m, base_view_of(vectors[i].text), TEXT_ALL, vectors[i].ids);
        text_make_close(&m);
    }
    if (test_case(t, "text/real-vocabulary-cases") && text_make_real(t, &m)) {
        test_real_cases(t, &m);
        text_make_close(&m);
    }
    if (test_case(t, "text/real-vocabulary-specials") && text_make_real(t, &m)) {
        static const int32_t ids[TEXT_SPECIAL_COUNT] = {
            0,  1,   2,   3,   4,   46,     47,     48,     49,     50,     51,     52,
            98, 100, 101, 105, 106, 255999, 258882, 258880, 256000, 258883, 258881, 258884};
        for (int i = 0; i < TEXT_SPECIAL_COUNT; i++)
            CHECK_INT(t, text_special(m.tok, (text_special_name)i), ids[i]);
        size_t n;
        const int32_t *stop = text_stop_ids(m.tok, &n);
        CHECK_INT(t, n, 3);
        CHECK(t, n == 3 && stop[0] == 1 && stop[1] == 50 && stop[2] == 106);
        CHECK(t, text_is_stop(m.tok, 106) && !text_is_stop(m.tok, 107) && !text_is_stop(m.tok, -1));
        CHECK_INT(t, text_token_kind(m.tok, 238), TEXT_KIND_BYTE);
        CHECK_INT(t, text_find(m.tok, BASE_VIEW("</s>")), 212);
        CHECK_INT(t, text_token_kind(m.tok, 212), TEXT_KIND_NORMAL);
        text_make_close(&m);
    }
    if (test_case(t, "text/real-vocabulary-opens-at-once") && text_make_real(t, &m)) {
        text_tokenizer *tok = NULL;
        uint64_t bytes = m.heap.bytes;
        double start = spent();
        CHECK_INT(t, text_tokenizer_open(&m.heap, &m.desc, &tok, NULL), BERYL_OK);
        double seconds = spent() - start;
        if (getenv("BERYL_TEST_TIMES"))
            printf("  opened in %.3f s, %.1f MB\n", seconds, 1e-6 * (double)(m.heap.bytes - bytes));
        CHECK(t, seconds < 0.5 * SLOW);
        CHECK(t, m.heap.bytes - bytes < 16u << 20);
        text_tokenizer_close(tok);
        CHECK_INT(t, m.heap.bytes, bytes);
        text_make_close(&m);
    }
}

/* ---- one megabyte of anything ---------------------------------------------------------------- */

enum { MEGABYTE = 1 << 20 };

static void fill(char *to, int what) {
    static const char *const units[] = {
        "a",        " ",  "\n",           "<",        "<|",    "\xE2\x96\x81", "\xFF",
        "\xE4\xBD", "ab", " the cat sat", "<|turn>x", "<0x0A>"};
    base_random random = {7};
    if (what < (int)(sizeof units / sizeof *units)) {
        for (size_t i = 0, n = strlen(units[what]); i < MEGABYTE; i++) to[i] = units[what][i % n];
        return;
    }
    for (size_t i = 0; i < MEGABYTE; i++) { /* 12: bytes, 13: letters, 14: code points */
        uint64_t r = base_random_next(&random);
        if (what == 12) to[i] = (char)(r >> 56);
        if (what == 13) to[i] = (char)("etaoin shrdlu,.\n<|>"[(r >> 32) % 19]);
        if (what != 14) continue;
        uint32_t c = (uint32_t)(r >> 40) % 0x800 + 0x80 * (uint32_t)(r & 0xFF);
        if (c < 0x80) c += 0x80;
        if (c < 0x800 && i + 2 <= MEGABYTE) {
            to[i] = (char)(0xC0 | c >> 6), to[++i] = (char)(0x80 | (c & 0x3F));
        } else if (c < 0xD800 && i + 3 <= MEGABYTE) {
            to[i] = (char)(0xE0 | c >> 12), to[i + 1] = (char)(0x80 | (c >> 6 & 0x3F)),
            to[i + 2] = (char)(0x80 | (c & 0x3F));
            i += 2;
        } else {
            to[i] = 'x';
        }
    }
}

static void test_megabytes(test *t) {
    static const char *const names[] = {"a",
                                        "blanks",
                                        "newlines",
                                        "less-than",
                                        "half-literals",
                                        "lower-eighth-blocks",
                                        "invalid-bytes",
                                        "cut-characters",
                                        "pairs",
                                        "words",
                                        "literals",
                                        "byte-literals",
                                        "random-bytes",
                                        "random-letters",
                                        "random-characters"};
    text_make m = {0};
    bool is_open = false;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (!test_case(t, "text/one-megabyte-of-%s", names[i])) continue;
        if (!is_open && !(is_open = text_make_real(t, &m))) continue;
        char *data = malloc(MEGABYTE);
        if (!data) abort();
        fill(data, i);
        for (int mode = 0; mode < 3; mode++) {
            text_ids ids = {0};
            base_text back;
            base_text_init(&back, &m.heap);
            double start = spent();
            CHECK_INT(t, text_encode(m.tok, data, MEGABYTE, (text_special_mode)mode, &ids, NULL),
                      BERYL_OK);
            double seconds = spent() - start;
            if (getenv("BERYL_TEST_TIMES"))
                printf("  %s, mode %d: %.3f s, %zu tokens\n", names[i], mode, seconds, ids.count);
            CHECK(t, seconds < 2.0 * SLOW);
            for (size_t k = 0; k < ids.count; k++)
                text_token_bytes(m.tok, ids.data[k], true, &back);
            if (i == 5)
                CHECK_INT(t, back.size,
                          MEGABYTE / 3 +
                              1); /* they come back as blanks, and one byte is left over */
            else if (!strstr(names[i], "random-characters"))
                CHECK(t, back.size == MEGABYTE && !memcmp(back.data, data, MEGABYTE));
            base_text_fini(&back);
            text_ids_fini(m.tok, &ids);
        }
        free(data);
    }
    if (is_open) text_make_close(&m);
}

/* ---- awkward texts --------------------------------------------------------------------------- */

/* The definition, in n²: merge the leftmost of the best pairs until there is none. */
static size_t encode_slowly(const text_vocab_desc *d, base_view text, base_view *pieces) {
    const base_view *merges = d->first_merge;
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++) pieces[n++] = (base_view){text.data + i, 1};
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t rank = 0; rank < d->n_merge && rank < best; rank++) {
                size_t left =
                    (size_t)((const char *)memchr(merges[rank].data, ' ', merges[rank].size) -
                             merges[rank].data);
                base_view l = {merges[rank].data, left},
                          r = {merges[rank].data + left + 1, merges[rank].size - left - 1};
                if (base_view_equal(l, pieces[i]) && base_view_equal(r, pieces[i + 1]))
                    best = rank, at = i;
            }
        }
        if (best == SIZE_MAX) return n;
        pieces[at].size += pieces[at + 1].size;
        n--;
        memmove(pieces + at + 1, pieces + at + 2, (n - at - 1) * sizeof *pieces);
    }
}

/* Random vocabularies over three letters and a newline; every encoding against the definition. */
static void test_against_definition(test *t) {
    base_random random = {42};
    for (int round = 0; round < 60; round++) {
        base_heap heap;
        base_arena arena;
        base_view tokens[80], merges[60], pieces[64];
        size_t n_token = 0, n_merge = 0;
        text_tokenizer *tok = NULL;
        base_heap_init(&heap, NULL);
        base_arena_init(&arena, &heap);
        for (size_t i = 0; i < 4; i++) tokens[n_token++] = (base_view){&"abc\n"[i], 1};
        for (int k = 0; k < 30; k++) {
            base_view l = tokens[base_random_next(&random) % n_token],
                      r = tokens[base_random_next(&random) % n_token];
            base_view joined = {
                base_arena_print(&arena, "%.*s%.*s", (int)l.size, l.data, (int)r.size, r.data),
                l.size + r.size};
            bool known = joined.size > 12;
            for (size_t i = 0; i < n_token; i++) known |= base_view_equal(tokens[i], joined);
            if (known) continue;
            tokens[n_token++] = joined;
            merges[n_merge++] = (base_view){
                base_arena_print(&arena, "%.*s %.*s", (int)l.size, l.data, (int)r.size, r.data),
                joined.size + 1};
        }
        text_vocab_desc desc = {.tokens = tokens,
                                .n_token = n_token,
                                .first_merge = merges,
                                .next_merge = text_next_merge,
                                .n_merge = n_merge,
                                .bos = -1,
                                .eos = -1,
                                .pad = -1,
                                .unk = -1};
        CHECK_INT(t, text_tokenizer_open(&heap, &desc, &tok, NULL), BERYL_OK);
        for (int k = 0; k < 20 && tok; k++) {
            char text[64];
            size_t size = base_random_next(&random) % 64;
            text_ids ids = {0};
            for (size_t i = 0; i < size; i++)
                text[i] = "abc\n"[base_random_next(&random) % (k < 10 ? 2 : 4)];
            size_t n = encode_slowly(&desc, (base_view){text, size}, pieces);
            CHECK_INT(t, text_encode(tok, text, size, TEXT_CONTENT, &ids, NULL), BERYL_OK);
            CHECK_INT(t, ids.count, n);
            for (size_t i = 0; i < n && i < ids.count; i++)
                CHECK(t, base_view_equal(tokens[ids.data[i]], pieces[i]));
            text_ids_fini(tok, &ids);
        }
        text_tokenizer_close(tok);
        base_arena_fini(&arena);
        CHECK_INT(t, heap.bytes, 0);
    }
}

static void test_bytes(test *t, const text_make *m) {
    base_random random = {3};
    for (int round = 0; round < 400; round++) {
        char data[40];
        size_t size = round < 256 ? 1 : base_random_next(&random) % sizeof data;
        for (size_t i = 0; i < size;
             i++) { /* lead and continuation bytes more often than chance has them */
            uint64_t r = base_random_next(&random);
            data[i] = (char)(round < 256 ? round
                             : (r & 3) ? "\xE2\x96\x81\xC3\xA9\xF0\x9F\xED\xA0\x00 <"[(r >> 8) % 12]
                                       : (int)(r >> 56));
        }
        text_ids ids = {0};
        base_heap heap;
        base_text back, blank;
        base_heap_init(&heap, NULL);
        base_text_init(&back, &heap);
        base_text_init(&blank, &heap);
        CHECK_INT(t, text_encode(m->tok, data, size, TEXT_USER_DEFINED, &ids, NULL), BERYL_OK);
        for (size_t i = 0; i < ids.count; i++) text_token_bytes(m->tok, ids.data[i], true, &back);
        for (size_t i = 0; i < size; i++) { /* what comes back has blanks for U+2581 */
            bool block = i + 3 <= size && !memcmp(data + i, "\xE2\x96\x81", 3);
            base_text_add(&blank, block ? " " : data + i, 1);
            if (block) i += 2;
        }
        CHECK(t, base_view_equal((base_view){back.data, back.size},
                                 (base_view){blank.data, blank.size}));
        base_text_fini(&back);
        base_text_fini(&blank);
        text_ids_fini(m->tok, &ids);
    }
}

static size_t count_id(const text_ids *ids, int32_t id) {
    size_t n = 0;
    for (size_t i = 0; i < ids->count; i++) n += ids->data[i] == id;
    return n;
}

static void test_literals(test *t, const text_make *m) {
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++) {
        const char *literal = text_special_literal((text_special_name)i);
        int32_t id = text_special(m->tok, (text_special_name)i);
        bool user = text_token_kind(m->tok, id) == TEXT_KIND_USER_DEFINED;
        if (!test_case(t, "text/content-never-becomes-%s", literal)) continue;
        char text[80];
        size_t size = (size_t)snprintf(text, sizeof text, "a%s%s b<%s>", literal, literal, literal);
        static const size_t all[] = {3};
        for (int mode = 0; mode < 3; mode++) {
            text_ids ids = {0};
            CHECK_INT(t, text_encode(m->tok, text, size, (text_special_mode)mode, &ids, NULL),
                      BERYL_OK);
            size_t want = mode == TEXT_ALL || (mode == TEXT_USER_DEFINED && user) ? all[0] : 0;
            CHECK_INT(t, count_id(&ids, id), want);
            text_ids_fini(m->tok, &ids);
        }
    }
}

static void test_segments(test *t, const text_make *m) {
    if (test_case(t, "text/merges-cross-segments")) {
        text_segment segments[] = {{BASE_VIEW(" t"), TEXT_ALL},
                                   {BASE_VIEW("h"), TEXT_CONTENT},
                                   {BASE_VIEW("e"), TEXT_ALL}};
        text_ids ids = {0};
        CHECK_INT(t, text_encode_segments(m->tok, segments, 3, &ids, NULL), BERYL_OK);
        CHECK_INT(t, ids.count, 1);
        CHECK_INT(t, ids.data[0], text_find(m->tok, BASE_VIEW("\xE2\x96\x81the")));
        text_ids_fini(m->tok, &ids);
    }
    if (test_case(t, "text/literals-do-not-cross-segments")) {
        text_segment segments[] = {{BASE_VIEW("<|tu"), TEXT_CONTENT},
                                   {BASE_VIEW("rn><turn|>"), TEXT_ALL},
                                   {BASE_VIEW("<|turn>"), TEXT_CONTENT},
                                   {BASE_VIEW("<turn"), TEXT_ALL},
                                   {BASE_VIEW("|>"), TEXT_ALL}};
        text_ids ids = {0};
        CHECK_INT(t, text_encode_segments(m->tok, segments, 5, &ids, NULL), BERYL_OK);
        CHECK_INT(t, count_id(&ids, text_special(m->tok, TEXT_SPECIAL_TURN)), 0);
        CHECK_INT(t, count_id(&ids, text_special(m->tok, TEXT_SPECIAL_TURN_END)), 1);
        text_ids_fini(m->tok, &ids);
    }
    if (test_case(t, "text/longest-literal-first")) {
        check_ids(t, m, BASE_VIEW("<|image|>"), TEXT_ALL, "19");
        check_ids(t, m, BASE_VIEW("<|image><|image|>"), TEXT_ALL, "17 19");
    }
    if (test_case(t, "text/plain-user-defined-tokens-are-found-in-content")) {
        char want[16];
        snprintf(want, sizeof want, "%d", (int)text_find(m->tok, BASE_VIEW("<b>")));
        for (int mode = 0; mode < 3; mode++)
            check_ids(t, m, BASE_VIEW("<b>"), (text_special_mode)mode, want);
    }
    if (test_case(t, "text/too-long-is-refused-before-it-is-read")) {
        text_segment segments[] = {{{"", TEXT_SIZE_MAX}, TEXT_ALL}, {{"", 1}, TEXT_ALL}};
        beryl_error error = {0};
        text_ids ids = {0};
        CHECK_INT(t, text_encode_segments(m->tok, segments, 2, &ids, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "1073741823 bytes"));
        CHECK_INT(t, text_encode(m->tok, "", SIZE_MAX, TEXT_ALL, &ids, &error), BERYL_BAD_INPUT);
    }
}

/* ---- streaming ------------------------------------------------------------------------------- */

static void test_stream(test *t, const text_make *m) {
    static const struct {
        const char *name, *bytes, *shown;
    } rows[] = {
        /* what has been shown after each byte, "|" between */
        {"two-bytes", "\xC3\xA9", "|\xC3\xA9"},
        {"three-bytes", "\xE4\xBD\xA0!", "||\xE4\xBD\xA0|!"},
        {"four-bytes", "\xF0\x9F\x91\x8B", "|||\xF0\x9F\x91\x8B"},
        {"lone-continuation", "\xA0z", "\xEF\xBF\xBD|z"},
        {"cut-by-text", "\xE4\xBDz", "||\xEF\xBF\xBDz"},
        {"cut-by-lead", "\xE4\xC3\xA9", "|\xEF\xBF\xBD|\xC3\xA9"},
        {"surrogate", "\xED\xA0\x80", "|\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD"},
        {"overlong", "\xE0\x80", "|\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"above-unicode", "\xF4\x90", "|\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"never-valid", "\xFF\xC0", "\xEF\xBF\xBD|\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!test_case(t, "text/stream-%s", rows[i].name)) continue;
        text_stream stream;
        base_heap heap;
        base_text out;
        base_heap_init(&heap, NULL);
        base_text_init(&out, &heap);
        text_stream_init(&stream, m->tok, false);
        for (const char *p = rows[i].bytes; *p; p++) {
            if (p != rows[i].bytes) base_text_add(&out, "|", 1);
            CHECK_INT(t, text_stream_push(&stream, TEXT_SPECIAL_COUNT + (uint8_t)*p, &out, NULL),
                      BERYL_OK);
        }
        CHECK_TEXT(t, out.data, rows[i].shown);
        base_text_fini(&out);
    }
    if (test_case(t, "text/stream-ends-with-a-replacement")) {
        static const int32_t cut[] = {TEXT_SPECIAL_COUNT + 0xE4, TEXT_SPECIAL_COUNT + 0xBD,
                                      TEXT_SPECIAL_TURN_END, TEXT_SPECIAL_QUOTE,
                                      TEXT_SPECIAL_COUNT + 0xE4};
        base_heap heap;
        base_text out;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        base_text_init(&out, &heap);
        CHECK_INT(t, text_decode(m->tok, cut, 5, false, &out, &error), BERYL_OK);
        CHECK_TEXT(t, out.data, "\xEF\xBF\xBD<|\"|>\xEF\xBF\xBD");
        base_text_clear(&out);
        CHECK_INT(t, text_decode(m->tok, cut + 2, 2, true, &out, &error), BERYL_OK);
        CHECK_TEXT(t, out.data, "<turn|><|\"|>");
        CHECK_INT(t,
                  text_decode(m->tok, &(int32_t){(int32_t)m->desc.n_token}, 1, true, &out, &error),
                  BERYL_BAD_INPUT);
        CHECK_INT(t, text_decode(m->tok, &(int32_t){-1}, 1, true, &out, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "-1"));
        base_text_fini(&out);
    }
}

/* ---- hostile vocabularies -------------------------------------------------------------------- */

static void test_refusals(test *t) {
    static const int32_t bad_type[] = {1, 77, 1}, byte_type[] = {1, 6, 1}, long_type[] = {3, 1, 1};
    char long_text[TEXT_LITERAL_MAX + 1];
    memset(long_text, 'x', sizeof long_text);
    const base_view tokens[] = {BASE_VIEW("a"), BASE_VIEW("b"), BASE_VIEW("ab")},
                    long_tokens[] = {{long_text, sizeof long_text}, tokens[1], tokens[2]};
    const base_view fine[] = {BASE_VIEW("a b")}, no_result[] = {BASE_VIEW("b a")},
                    no_space[] = {BASE_VIEW("ab")}, no_left[] = {BASE_VIEW(" ab")},
                    no_right[] = {BASE_VIEW("ab ")}, unknown[] = {BASE_VIEW("a c")};
    const text_vocab_desc base = {.tokens = tokens,
                                  .n_token = 3,
                                  .first_merge = fine,
                                  .next_merge = text_next_merge,
                                  .n_merge = 1,
                                  .bos = -1,
                                  .eos = -1,
                                  .pad = -1,
                                  .unk = -1};
    struct {
        const char *name;
        text_vocab_desc desc;
        beryl_status status;
        const char *says;
    } rows[] = {
        {"empty", base, BERYL_BAD_FILE, "0 tokens"},
        {"no-merges", base, BERYL_UNSUPPORTED, "no merges"},
        {"merge-without-blank", base, BERYL_BAD_FILE, "merge 0"},
        {"merge-without-left", base, BERYL_BAD_FILE, "merge 0"},
        {"merge-without-right", base, BERYL_BAD_FILE, "merge 0"},
        {"merge-of-unknown-tokens", base, BERYL_BAD_FILE, "(\"a c\")"},
        {"merge-to-unknown-token", base, BERYL_BAD_FILE, "(\"b a\")"},
        {"unknown-type", base, BERYL_BAD_FILE, "type 77"},
        {"byte-without-value", base, BERYL_BAD_FILE, "byte without a value"},
        {"long-literal", base, BERYL_UNSUPPORTED, "257 bytes"},
        {"id-outside", base, BERYL_BAD_FILE, "id 3 "},
        {"negative-id", base, BERYL_BAD_FILE, "id -2 "},
        {"end-id-outside", base, BERYL_BAD_FILE, "the id 9 "},
        {"too-many-ends", base, BERYL_BAD_FILE, "longer than"},
    };
    rows[0].desc.n_token = 0;
    rows[1].desc.n_merge = 0;
    rows[2].desc.first_merge = no_space;
    rows[3].desc.first_merge = no_left;
    rows[4].desc.first_merge = no_right;
    rows[5].desc.first_merge = unknown;
    rows[6].desc.first_merge = no_result;
    rows[7].desc.types = bad_type;
    rows[8].desc.types = byte_type;
    rows[9].desc.types = long_type;
    rows[9].desc.tokens = long_tokens;
    rows[10].desc.bos = 3;
    rows[11].desc.unk = -2;
    rows[12].desc.suppress = &(int32_t){9};
    rows[12].desc.n_suppress = 1;
    rows[13].desc.eos_ids = &(int32_t){0};
    rows[13].desc.n_eos = 1 << 20;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!test_case(t, "text/vocabulary-refused-%s", rows[i].name)) continue;
        base_heap heap;
        beryl_error error = {0};
        text_tokenizer *tok = NULL;
        base_heap_init(&heap, NULL);
        CHECK_INT(t, text_tokenizer_open(&heap, &rows[i].desc, &tok, &error), rows[i].status);
        if (!strstr(error.message, rows[i].says))
            test_fail(t, __FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, rows[i].says);
        CHECK(t, !tok);
        CHECK_INT(t, heap.bytes, 0);
    }
    if (test_case(t, "text/byte-without-token-is-refused")) {
        base_heap heap;
        beryl_error error = {0};
        text_tokenizer *tok = NULL;
        text_ids ids = {0};
        base_heap_init(&heap, NULL);
        CHECK_INT(t, text_tokenizer_open(&heap, &base, &tok, &error), BERYL_OK);
        CHECK_INT(t, text_encode(tok, "abab", 4, TEXT_ALL, &ids, &error), BERYL_OK);
        CHECK_INT(t, text_encode(tok, "abc", 3, TEXT_ALL, &ids, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "0x63"));
        CHECK_INT(t, ids.count, 2); /* as it was */
        text_ids_fini(tok, &ids);
        text_tokenizer_close(tok);
        CHECK_INT(t, heap.bytes, 0);
    }
    if (test_case(t, "text/merges-never-build-control-tokens")) {
        const base_view names[] = {BASE_VIEW("<"), BASE_VIEW("s>"), BASE_VIEW("<s>"),
                                   BASE_VIEW("s"), BASE_VIEW(">")};
        const base_view merges[] = {BASE_VIEW("s >"), BASE_VIEW("< s>")};
        static const int32_t types[] = {1, 1, 3, 1, 1};
        base_heap heap;
        text_tokenizer *tok = NULL;
        text_ids ids = {0};
        base_heap_init(&heap, NULL);
        text_vocab_desc desc = {.tokens = names,
                                .n_token = 5,
                                .types = types,
                                .first_merge = merges,
                                .next_merge = text_next_merge,
                                .n_merge = 2,
                                .bos = -1,
                                .eos = -1,
                                .pad = -1,
                                .unk = -1};
        CHECK_INT(t, text_tokenizer_open(&heap, &desc, &tok, NULL), BERYL_OK);
        CHECK_INT(t, text_encode(tok, "<s>", 3, TEXT_USER_DEFINED, &ids, NULL), BERYL_OK);
        CHECK(t, ids.count == 2 && ids.data[0] == 0 && ids.data[1] == 1);
        text_ids_fini(tok, &ids);
        text_tokenizer_close(tok);
    }
}

static void test_memory(test *t) {
    if (!test_case(t, "text/every-allocation-may-fail")) return;
    base_heap heap;
    base_arena arena;
    text_vocab_desc desc;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    text_make_tiny_desc(&arena, &desc);
    desc.eos_ids = &(int32_t){1};
    desc.n_eos = 1;
    desc.suppress = desc.eos_ids;
    desc.n_suppress = 1;
    beryl_status status = BERYL_NO_MEMORY;
    for (long n = 0; n < 200 && status; n++) {
        text_make_limit limit = {n, 0};
        base_heap limited;
        text_tokenizer *tok = NULL;
        text_ids ids = {0};
        base_text out;
        text_make_limited(&limited, &limit);
        base_text_init(&out, &limited);
        status = text_tokenizer_open(&limited, &desc, &tok, NULL);
        if (!status)
            status = text_encode(tok, "the <|turn>\n in\xE4\xBD", 16, TEXT_ALL, &ids, NULL);
        if (!status) status = text_decode(tok, ids.data, ids.count, true, &out, NULL);
        if (!status) CHECK_TEXT(t, out.data, "the <|turn>\n in\xEF\xBF\xBD");
        CHECK(t, status == BERYL_OK || status == BERYL_NO_MEMORY);
        base_text_fini(&out);
        if (tok) text_ids_fini(tok, &ids);
        text_tokenizer_close(tok);
        CHECK_INT(t, limit.out, 0);
    }
    CHECK_INT(t, status, BERYL_OK);
    base_arena_fini(&arena);
}

void test_text(test *t) {
    text_make m;
    test_real(t);
    test_megabytes(t);
    if (test_case(t, "text/encoding-is-its-definition")) test_against_definition(t);
    if (test_case(t, "text/any-bytes-come-back") && text_make_tiny(t, &m)) {
        test_bytes(t, &m);
        text_make_close(&m);
    }
    if (test_case(t, "text/model-files-open")) {
        static const char *const files[] = {"e2b-f32.gguf", "e2b-q4km.gguf"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            if (!text_make_file(t, &m, test_data(t, files[i]))) continue;
            CHECK_INT(t, text_special(m.tok, TEXT_SPECIAL_TURN_END), 6);
            CHECK(t, text_is_stop(m.tok, 6) && text_is_stop(m.tok, 21) && text_is_stop(m.tok, 1));
            text_make_close(&m);
        }
    }
    base_heap heap;
    base_arena arena;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    m = (text_make){.heap = heap};
    text_make_tiny_desc(&arena, &m.desc);
    if (!text_tokenizer_open(&heap, &m.desc, &m.tok, NULL)) {
        test_literals(t, &m);
        test_segments(t, &m);
        test_stream(t, &m);
    }
    text_tokenizer_close(m.tok);
    base_arena_fini(&arena);
    test_refusals(t);
    test_memory(t);
}
