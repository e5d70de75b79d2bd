/* graph_text_test.c - graphs as text: every operation there and back, what is refused, and an
 * allocator that fails. */
#include "rig.h"
#include "test.h"

#include "graph/text.h"

#include <stdio.h>
#include <string.h>

static const char whole[] = "extent n 7\n"
                            "extent m_2 3\n"
                            "%1 = input F32 [n 4 8] \"x \\22in quotes\\22 \\5c\"\n"
                            "%2 = weight Q4_0 [96 32] \"w\"\n"
                            "%3 = state F16 [2 50 4 8] \"keys\"\n"
                            "%4 = reshape %1 [n 32]\n"
                            "%5 = linear %4 %2\n"
                            "%6 = narrow %5 1 3 64\n"
                            "%7 = copy %6\n"
                            "%8 = reshape %7 [n 1 64]\n"
                            "%9 = squeeze %8 1\n"
                            "%10 %11 = topk %9 5\n"
                            "%12 = input I32 [n] \"slot\"\n"
                            "%13 = input I32 [n] \"pos\"\n"
                            "%14 = kv_write %3 %1 %12 %13\n"
                            "%15 = attention %1 %14 %14 %12 %13 0x1.666666p-1 20\n"
                            "%16 = attention %15 %14 %14 %12 %13 1 0 apart 40\n"
                            "%17 = input F32 [n 2 4] \"angles\"\n"
                            "%18 = rope %16 %17\n"
                            "%19 = weight F32 [8] \"norm\"\n"
                            "%20 = rms_norm %18 %19 0x1.0c6f7ap-20\n"
                            "%21 = rms_norm %20 0\n"
                            "%22 = softmax %21\n"
                            "%23 = gelu_tanh %22\n"
                            "%24 = geglu %23 %22\n"
                            "%25 = softcap %24 30\n"
                            "%26 = scale %25 -0x1.99999ap-4\n"
                            "%27 = add %26 %19\n"
                            "%28 = mul %27 %27\n"
                            "%29 = reshape %28 [n 4 8]\n"
                            "%30 = narrow %29 2 0 1\n"
                            "%31 = squeeze %30 2\n"
                            "%32 = weighted_sum %29 %31\n"
                            "%33 = weight MXFP4 [3 6 64] \"experts\"\n"
                            "%34 = linear_id %8 %33 %11\n"
                            "%35 = argmax %32\n"
                            "%36 = input U32 [n 8] \"settings\"\n"
                            "%37 = sample %32 %36\n"
                            "%38 = state I32 [9] \"tokens\"\n"
                            "%39 = set_rows %38 %37 %12\n"
                            "%40 = gather_rows %39 %13 1\n"
                            "%41 = gather_rows %2 %35 0x1.8p-3\n"
                            "%42 = layer_norm %27 %19 %19 0x1.0c6f7ap-20\n"
                            "%43 = layer_norm %42 0\n"
                            "%44 = input F32 [ceil((n+m_2)/2) 2*n*m_2+1] \"sized\"\n"
                            "%45 = attention %1 %14 %14 %12 %13 %12 1 0\n"
                            "%46 = cumsum %43 1\n"
                            "%47 = reshape %46 [n 8 4]\n"
                            "%48 = group_norm %47 %19 %19 2 0x1.0c6f7ap-20\n"
                            "%49 = group_norm %48 8 0\n"
                            "%50 = permute %48 [2 0 1]\n"
                            "%51 = narrow %50 0 1 2 2\n"
                            "%52 = flip %51 0\n"
                            "%53 = unsqueeze %52 1\n"
                            "%54 = expand %53 [2 m_2 n 8]\n"
                            "%55 = diagonal %53 0 1\n"
                            "%56 = pad %49 1 3 2 -0x1p-1\n"
                            "%57 = concat %56 %49 %56 1\n"
                            "%58 = tril %57 -3\n"
                            "%59 = triu %58 1\n"
                            "%60 = windows %59 2 3 2\n"
                            "%61 = resize %59 2 9 3\n"
                            "%62 = iota %61 1\n"
                            "%63 = random %36 %36 2 7 0 0x1p-1\n"
                            "%64 %65 = sort %59 1 0\n"
                            "%66 = arg_largest %64 4\n"
                            "%67 = input I32 [n 4 3] \"ids\"\n"
                            "%68 = gather %1 %67 2\n"
                            "%69 = scatter %1 %67 %68 2\n"
                            "%70 = scatter_add %69 %67 %68 2\n"
                            "%71 = one_hot %67 5\n"
                            "%72 = nonzero %70\n"
                            "%73 = copy %39\n"
                            "%74 = assign %39 %73\n"
                            "output %27 \"y\"\n"
                            "output %34 \"\"\n"
                            "output %40 \"chosen\"\n"
                            "output %41 \"rows\"\n";

typedef struct lab {
    base_heap heap;
    graph_store store;
    graph *g;
    uint64_t file_bytes;
    beryl_error error;
} lab;

static beryl_status lab_open(lab *l, const beryl_allocator *allocator, const char *text,
                             size_t size) {
    *l = (lab){0};
    base_heap_init(&l->heap, allocator);
    store_init(&l->store, &l->heap, NULL, NULL, 0, NULL);
    l->g = graph_open(&l->heap);
    return l->g ? graph_text_parse(text, size, l->g, &l->store, &l->file_bytes, &l->error)
                : BERYL_NO_MEMORY;
}

static void lab_close(test *t, lab *l) {
    graph_close(l->g);
    store_fini(&l->store);
    CHECK_INT(t, l->heap.bytes, 0);
}

static void check_there_and_back(test *t) {
    lab l;
    base_text text;
    CHECK_INT(t, lab_open(&l, NULL, whole, strlen(whole)), BERYL_OK);
    base_text_init(&text, &l.heap);
    CHECK_INT(t, graph_text_print(l.g, &l.store, &text, &l.error), BERYL_OK);
    CHECK_TEXT(t, text.data, whole);
    base_text_fini(&text);
    CHECK_INT(t, l.g->tensors.count, 75);
    CHECK_INT(t, l.store.tensors.count, 5);
    CHECK_INT(t, l.file_bytes, 96 * 18 + 32 + (3 * 6 * 2 * 17 + 31) / 32 * 32);
    CHECK_INT(t, l.store.tensors.data[3].file_offset, 96 * 18 + 32);
    lab_close(t, &l);
}

/* Names that are no words or not the first of their kind, ids in any order, comments. */
static void check_names(test *t) {
    static const char said[] = "; a graph\n extent a 2 ; first\r\n%70 = input F32 [a 3] "
                               "\"x\"\n\n%5 = copy %70\noutput %5 \"y\"";
    lab l;
    base_text text;
    CHECK_INT(t, lab_open(&l, NULL, said, strlen(said)), BERYL_OK);
    l.g->extents[1].name = "not a word";
    base_text_init(&text, &l.heap);
    CHECK_INT(t, graph_text_print(l.g, &l.store, &text, &l.error), BERYL_OK);
    CHECK_TEXT(
        t, text.data,
        "extent extent_1 2\n%1 = input F32 [extent_1 3] \"x\"\n%2 = copy %1\noutput %2 \"y\"\n");
    base_text_fini(&text);
    lab_close(t, &l);
}

static const char *const refused[] = {
    "extent",
    "extent 7 7",
    "extent n 0",
    "extent n 4294967296",
    "extent n 3\nextent n 3",
    "%1",
    "%1 =",
    "%1 = nothing %1",
    "%1 = copy %1",
    "%1 = copy %2",
    "%1 = fused",
    "1 = input F32 [3] \"x\"",
    "%1 = input F32 [3] \"x",
    "%1 = input F32 [3] x",
    "%1 = input F32 [3] \"\\\"",
    "%1 = input F32 [3] \"\\00\"",
    "%1 = input F32 [3] \"\\ff\"",
    "%1 = input F32 [3 \"x\"",
    "%1 = input F32 [n] \"x\"",
    "%1 = input F32 [0] \"x\"",
    "%1 = input F32 [1 1 1 1 1 1 1 1 1 1 1] \"x\"",
    "%1 = input F32 [65536 65536] \"x\"",
    "%1 = input F32 [4294967295 4294967295 4294967295 4294967295] \"x\"",
    "%1 = input Q4_0 [32] \"x\"",
    "%1 = input F99 [32] \"x\"",
    "%1 = input F32 [3] \"x\" 5",
    "%4000000000 = input F32 [3] \"x\"",
    "%1 = input F32 [3] \"x\"\n%1 = input F32 [3] \"x\"",
    "%1 %2 = input F32 [3] \"x\"",
    "%1 = weight Q4_0 [33] \"w\"",
    "%1 = weight Q8_K [256] \"w\"",
    "%1 = weight F32 [] \"w\"",
    "%1 = weight F32 [0 3] \"w\"",
    "%1 = weight F32 [1 1 1 1 1 1 1 1 1 1 1] \"w\"",
    "%1 = weight F32 [2147483647 2147483647 2147483647 4294967295] \"w\"",
    "extent n 3\n%1 = weight F32 [n] \"w\"",
    "%1 = state F16 [4294967295 4294967295] \"s\"",
    "%1 = state BF16 [3] \"s\"",
    "%1 = input F32 [3] \"x\"\n%2 = scale %1",
    "%1 = input F32 [3] \"x\"\n%2 = scale %1 1.5",
    "%1 = input F32 [3] \"x\"\n%2 = scale %1 inf",
    "%1 = input F32 [3] \"x\"\n%2 = scale %1 0x1.00000001p+0",
    "%1 = input F32 [3] \"x\"\n%2 = add %1",
    "%1 = input F32 [3] \"x\"\n%2 = copy %1 %1",
    "%1 = input F32 [] \"x\"\n%2 = softmax %1",
    "%1 = input F32 [3] \"x\"\n%2 = reshape %1 [2]",
    "%1 = input F32 [3] \"x\"\n%2 = narrow %1 0 2 2",
    "%1 = input F32 [3] \"x\"\n%2 = narrow %1 0 4294967295 2",
    "%1 = input F32 [3] \"x\"\n%2 = squeeze %1 0",
    "%1 = weight Q4_0 [4 64] \"w\"\n%2 = reshape %1 [8 32]",
    "%1 = weight Q4_0 [4 64] \"w\"\n%2 = narrow %1 1 32 32",
    "%1 = input F32 [3 3] \"x\"\n%2 = topk %1 1",
    "%1 = input F32 [3 3] \"x\"\n%2 %3 = topk %1 4",
    "%1 = input F32 [3] \"x\"\noutput %1 \"y\"",
    ("%1 = input F32 [1 2 4] \"q\"\n%2 = state F32 [1 9 2 4] \"k\"\n%3 = input I32 [1] \"i\"\n"
     "%4 = attention %1 %2 %2 %3 %3 %3 1 5"),
};

static void check_refusals(test *t) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lab l;
        beryl_status status = lab_open(&l, NULL, refused[i], strlen(refused[i]));
        if (status != BERYL_BAD_INPUT || !l.error.message[0] || l.error.at > strlen(refused[i]))
            test_fail(t, __FILE__, __LINE__, "\"%s\": %d %s", refused[i], (int)status,
                      l.error.message);
        lab_close(t, &l);
    }
    for (size_t size = 0; size < sizeof whole; size++) { /* cut anywhere: an end or a refusal */
        lab l;
        beryl_status status = lab_open(&l, NULL, whole, size);
        if (status != BERYL_OK && status != BERYL_BAD_INPUT)
            test_fail(t, __FILE__, __LINE__, "cut at %zu: %d", size, (int)status);
        lab_close(t, &l);
    }
}

static void check_no_memory(test *t) {
    beryl_status status = BERYL_NO_MEMORY;
    uint64_t n = 0;
    for (; status == BERYL_NO_MEMORY && n < 1000; n++) {
        rig_failing failing = {n};
        lab l;
        base_text text;
        status =
            lab_open(&l, &(beryl_allocator){rig_failing_resize, &failing}, whole, strlen(whole));
        base_text_init(&text, &l.heap);
        if (status == BERYL_OK) status = graph_text_print(l.g, &l.store, &text, &l.error);
        if (status == BERYL_OK) CHECK_TEXT(t, text.data, whole);
        base_text_fini(&text);
        lab_close(t, &l);
    }
    CHECK_INT(t, status, BERYL_OK);
    CHECK(t, n > 10);
}

void test_graph_text(test *t) {
    if (test_case(t, "graph_text/there-and-back")) check_there_and_back(t);
    if (test_case(t, "graph_text/names")) check_names(t);
    if (test_case(t, "graph_text/refuses")) check_refusals(t);
    if (test_case(t, "graph_text/no-memory")) check_no_memory(t);
}
