/* hip_compile_test.c - kernels of the engine as HIP C, compiled for AMD's GPUs: a layer of one
 * vector and of many, planned for a device that has nothing but its capabilities. What
 * generators write of each op: codegen_test.c. */
#include "hip_compile.h"

#include "plan/exec.h"
#include "graph/text.h"

#include <string.h>

/* Products of packed weights, attention over a cache of halves, a chain of pointwise operations
 * that ends in a row's. */
static const char layer[] = "%1 = input I32 [n] \"slot\"\n"
                            "%2 = input I32 [n] \"position\"\n"
                            "%3 = input F32 [n 2 32] \"angles\"\n"
                            "%4 = input F32 [n 256] \"x\"\n"
                            "%5 = weight F32 [256] \"norm\"\n"
                            "%6 = rms_norm %4 %5 0x1p-20\n"
                            "%7 = weight Q4_K [256 256] \"q\"\n"
                            "%8 = linear %6 %7\n"
                            "%9 = weight Q6_K [64 256] \"k\"\n"
                            "%10 = linear %6 %9\n"
                            "%11 = weight Q8_0 [64 256] \"v\"\n"
                            "%12 = linear %6 %11\n"
                            "%13 = reshape %8 [n 4 64]\n"
                            "%14 = rope %13 %3\n"
                            "%15 = reshape %10 [n 1 64]\n"
                            "%16 = rope %15 %3\n"
                            "%17 = reshape %12 [n 1 64]\n"
                            "%18 = state F16 [1 64 1 64] \"keys\"\n"
                            "%19 = state F16 [1 64 1 64] \"values\"\n"
                            "%20 = kv_write %18 %16 %1 %2\n"
                            "%21 = kv_write %19 %17 %1 %2\n"
                            "%22 = attention %14 %20 %21 %1 %2 0x1p-3 0\n"
                            "%23 = reshape %22 [n 256]\n"
                            "%24 = weight F16 [256 256] \"out\"\n"
                            "%25 = linear %23 %24\n"
                            "%26 = add %4 %25\n"
                            "%27 = softcap %26 30\n"
                            "%28 = gelu_tanh %27\n"
                            "%29 = softmax %28\n"
                            "output %29 \"y\"\n";

static beryl_status zeros(void *user, uint64_t offset, void *to, size_t size) {
    (void)user, (void)offset;
    memset(to, 0, size);
    return BERYL_OK;
}

static void add_plan(test *t, hip_texts *h, base_heap *heap, device *d, uint32_t n) {
    char text[2000];
    graph_store store;
    graph_exec *exec = NULL;
    lower_texts one;
    uint64_t bytes = 0;
    beryl_error error = {0};
    beryl_source source = {.read = zeros};
    const unsigned before = h->n;
    snprintf(text, sizeof text, "extent n %u\n%s", n, layer);
    beryl_status status = store_init(&store, heap, d, &source, 1, &error);
    graph *g = graph_open(heap);
    if (status == BERYL_OK)
        status = graph_text_parse(text, strlen(text), g, &store, &bytes, &error);
    source.size = bytes;
    if (status == BERYL_OK) status = store_layout(&store, 0, &error);
    if (status == BERYL_OK) status = store_make(&store, &error);
    if (status == BERYL_OK)
        status =
            graph_exec_open(g, &store, &(graph_exec_options){.explained = true}, &exec, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t i = 0; status == BERYL_OK && graph_exec_texts_at(exec, i, &one); i++)
        if (one.code && one.language == DEVICE_HIP_C) hip_texts_add(t, h, one.code);
    CHECK(t, h->n - before > 4);
    graph_exec_close(exec);
    graph_close(g);
    store_fini(&store);
}

static void check_lowered(test *t, const char *architecture, uint32_t subgroup) {
    static const uint32_t vectors[] = {1, 5, 40};
    hip_texts h;
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    if (!hip_texts_open(t, &h, architecture)) return;
    base_heap_init(&heap, NULL);
    if (device_open(&heap, NULL, "dummy", &d, &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    } else {
        d->caps.languages = DEVICE_LANGUAGE_BIT(DEVICE_HIP_C);
        d->caps.kind = DEVICE_DISCRETE;
        d->caps.f16 = d->caps.subgroups = d->caps.dot_i8 = true;
        d->caps.subgroup_size = subgroup;
        for (int i = 0; i < 3; i++) add_plan(t, &h, &heap, d, vectors[i]);
        device_close(d);
    }
    hip_texts_compile(t, &h);
    CHECK_INT(t, heap.bytes, 0);
}

void test_hip_compile(test *t);
void test_hip_compile(test *t) {
    if (test_case(t, "hip_compile/lowered-gfx90a")) check_lowered(t, "gfx90a", 64);
    if (test_case(t, "hip_compile/lowered-gfx1100")) check_lowered(t, "gfx1100", 32);
}
