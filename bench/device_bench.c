/* device_bench.c - what a device itself costs: opening, compiling, a submit, a dispatch, a round
 * trip, uploads, readbacks, copies.
 *   device_bench [DEVICE [MIB]]      default: the best device, blocks of 64 MiB
 * Each figure is the best of a few tries. Kernels are the smallest there are, in the device's
 * own language, so that the figures are the driver's and Beryl's, not a kernel's. */
#include "base/thread.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_DISPATCH = 200, TRIES = 40, BIG_TRIES = 6 };

typedef struct bench {
    base_heap heap;
    device *d;
    beryl_error error;
    device_program program;
    device_buffer x, y;
    device_bindings bindings;
    uint64_t bytes;
} bench;

/* y[i] = x[i] for n blocks of 16 bytes; params {n, salt}. */
static const struct {
    device_language language;
    const char *text;
} texts[] = {
    {DEVICE_WGSL,
     "struct Params { n: u32, salt: u32 }\n"
     "@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;\n"
     "@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;\n"
     "@group(1) @binding(0) var<uniform> params: Params;\n"
     "@compute @workgroup_size(256) fn move_blocks(@builtin(workgroup_id) g: vec3<u32>,\n"
     "    @builtin(local_invocation_index) lane: u32) {\n"
     "    let i = (g.y * 32768u + g.x) * 256u + lane;\n"
     "    if (i < params.n) { y[i] = x[i]; }\n}\n"},
    {DEVICE_CUDA_C,
     "struct params_t { unsigned int n, salt; };\n"
     "extern \"C\" __global__ void move_blocks(const void *x, void *y, const params_t params) {\n"
     "    struct alignas(16) block { unsigned int a, b, c, d; };\n"
     "    unsigned int i = (blockIdx.y * 32768u + blockIdx.x) * 256u + threadIdx.x;\n"
     "    if (i < params.n) ((block *)y)[i] = ((const block *)x)[i];\n}\n"},
    {DEVICE_HIP_C, NULL}, /* as CUDA */
    {DEVICE_OPENCL_C,
     "__kernel void move_blocks(__global const uint4 *x, __global uint4 *y,\n"
     "    __constant const uint *params, uint at) {\n"
     "    uint i = ((uint)get_group_id(1) * 32768u + (uint)get_group_id(0)) * 256u +\n"
     "             (uint)get_local_id(0);\n"
     "    if (i < params[at]) y[i] = x[i];\n}\n"},
    {DEVICE_C,
     "#include <stdint.h>\n"
     "uint32_t move_blocks_scratch_bytes(void) { return 0; }\n"
     "void move_blocks(void *const *b, const uint32_t *params, const uint32_t groups[3], uint32_t "
     "first,\n"
     "    uint32_t count, void *scratch) {\n"
     "    typedef struct { uint32_t word[4]; } block;\n"
     "    const block *x = b[0]; block *y = b[1]; (void)scratch;\n"
     "    for (uint32_t g = first; g < first + count; g++)\n"
     "        for (uint32_t lane = 0; lane < 256; lane++) {\n"
     "            uint32_t i = ((g / groups[0]) * 32768u + g % groups[0]) * 256u + lane;\n"
     "            if (i < params[0]) y[i] = x[i];\n"
     "        }\n}\n"},
};

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "device_bench: %s: %s\n", what, error->message);
    return 1;
}

static beryl_status make(bench *b) {
    const uint32_t languages = device_caps_of(b->d)->languages;
    size_t at = 0, n = sizeof texts / sizeof *texts;
    while (at < n && !(languages & DEVICE_LANGUAGE_BIT(texts[at].language))) at++;
    if (at == n) return b->error.code = BERYL_UNSUPPORTED;
    const char *text = texts[at].text ? texts[at].text : texts[at - 1].text;
    device_program_desc desc = {.language = texts[at].language,
                                .source = text,
                                .source_size = strlen(text),
                                .entry = "move_blocks",
                                .label = "move_blocks",
                                .n_binding = 2,
                                .access = {DEVICE_READ, DEVICE_READ_WRITE},
                                .param_bytes = 8,
                                .workgroup = {256, 1, 1}};
    beryl_status status = device_program_make(b->d, &desc, &b->program, &b->error);
    if (!status)
        while ((status = device_program_status(b->d, b->program, &b->error)) == BERYL_PENDING)
            base_sleep(2e-4);
    if (!status) status = device_buffer_make(b->d, b->bytes, "x", &b->x, &b->error);
    if (!status) status = device_buffer_make(b->d, b->bytes, "y", &b->y, &b->error);
    device_binding ranges[] = {{.buffer = b->x}, {.buffer = b->y}};
    if (!status)
        status = device_bindings_make(b->d, b->program, ranges, 2, &b->bindings, &b->error);
    return status;
}

static beryl_status submit(bench *b, const device_command *list, size_t n, const void *params,
                           size_t param_bytes, device_ticket *ticket) {
    beryl_status status;
    device_ticket done;
    while ((status = device_submit(b->d, &(device_submit_desc){list, n, params, param_bytes},
                                   ticket, &b->error)) == BERYL_PENDING)
        if (device_poll(b->d, &done, &b->error)) break;
    return status;
}

static device_command dispatch(const bench *b, uint32_t x, uint32_t y, uint32_t param_offset) {
    device_command c = {.kind = DEVICE_DISPATCH};
    c.dispatch.program = b->program;
    c.dispatch.bindings = b->bindings;
    c.dispatch.groups[0] = x, c.dispatch.groups[1] = y, c.dispatch.groups[2] = 1;
    c.dispatch.param_offset = param_offset;
    return c;
}

/* A list of N_DISPATCH tiny dispatches, again and again: with the same parameters or others each
 * time. */
static beryl_status bench_dispatches(bench *b, bool change) {
    static uint32_t params[N_DISPATCH][DEVICE_PARAM_ALIGN / 4];
    device_command list[N_DISPATCH + 2];
    double host = 1e9, whole = 1e9, stamped = 1e9;
    list[0] = list[N_DISPATCH + 1] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < N_DISPATCH; i++) {
        params[i][0] = 64;
        list[1 + i] = dispatch(b, 1, 1, i * DEVICE_PARAM_ALIGN);
    }
    for (uint32_t round = 0; round < TRIES; round++) {
        for (uint32_t i = 0; change && i < N_DISPATCH; i++) params[i][1] = round + i;
        device_ticket ticket;
        uint64_t ns[2] = {0};
        uint32_t n = 2;
        double t0 = base_time();
        beryl_status status = submit(b, list, N_DISPATCH + 2, params, sizeof params, &ticket);
        double t1 = base_time();
        if (!status) status = device_wait(b->d, ticket, &b->error);
        double t2 = base_time();
        if (status) return status;
        if (!device_stamps(b->d, ticket, ns, &n, NULL) && n == 2 && (double)ns[1] * 1e-9 < stamped)
            stamped = (double)ns[1] * 1e-9;
        device_fetch_drop(b->d, ticket);
        if (t1 - t0 < host) host = t1 - t0;
        if (t2 - t0 < whole) whole = t2 - t0;
    }
    printf("%d dispatches, %s: submit %.1f us, with wait %.1f us", N_DISPATCH,
           change ? "other parameters" : "same parameters", host * 1e6, whole * 1e6);
    if (stamped < 1e8)
        printf(", on the device %.1f us (%.2f us each)", stamped * 1e6, stamped * 1e6 / N_DISPATCH);
    printf("\n");
    return BERYL_OK;
}

static beryl_status bench_round_trip(bench *b) {
    uint32_t params[2] = {64, 0};
    device_command list[2] = {dispatch(b, 1, 1, 0), {.kind = DEVICE_FETCH}};
    list[1].fetch.buffer = b->y;
    list[1].fetch.size = 4;
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        device_ticket ticket;
        double t0 = base_time();
        beryl_status status = submit(b, list, 2, params, sizeof params, &ticket);
        if (!status) status = device_wait(b->d, ticket, &b->error);
        double t1 = base_time();
        if (status) return status;
        device_fetch_drop(b->d, ticket);
        if (t1 - t0 < best) best = t1 - t0;
    }
    printf("dispatch, fetch of 4 bytes and wait: %.1f us\n", best * 1e6);
    return BERYL_OK;
}

/* kind: 0 upload, 1 readback, 2 copy command, 3 copying kernel. */
static beryl_status bench_bytes(bench *b, int kind) {
    static const char *const names[] = {"upload", "readback", "copy", "copying kernel"};
    uint32_t n_block = (uint32_t)(b->bytes / 16), groups = (n_block + 255) / 256,
             params[2] = {n_block, 0};
    double best = 1e9;
    for (int i = 0; i < BIG_TRIES; i++) {
        beryl_status status = BERYL_OK;
        double t0 = base_time();
        for (uint64_t at = 0; kind == 0 && at < b->bytes && !status;) {
            size_t piece = device_stage_max(b->d);
            void *memory;
            if (piece > b->bytes - at) piece = (size_t)(b->bytes - at);
            status = device_stage(b->d, piece, &memory, &b->error);
            if (status == BERYL_PENDING) {
                device_ticket done;
                status = device_poll(b->d, &done, &b->error);
                continue;
            }
            if (!status) memset(memory, i, piece);
            if (!status) status = device_stage_commit(b->d, b->x, at, piece, &b->error);
            at += piece;
        }
        device_command c = {.kind = DEVICE_COPY};
        c.copy.from = b->x, c.copy.to = b->y, c.copy.size = b->bytes;
        if (kind == 1) {
            c = (device_command){.kind = DEVICE_FETCH};
            c.fetch.buffer = b->x, c.fetch.size = b->bytes;
        }
        if (kind == 3)
            c = dispatch(b, groups < 32768 ? groups : 32768, (groups + 32767) / 32768, 0);
        device_ticket ticket;
        if (!status) status = submit(b, &c, kind != 0, params, sizeof params, &ticket);
        if (!status) status = device_wait(b->d, ticket, &b->error);
        double t1 = base_time();
        if (status) return status;
        device_fetch_drop(b->d, ticket);
        if (t1 - t0 < best) best = t1 - t0;
    }
    double moved = (double)b->bytes * (kind < 2 ? 1 : 2);
    printf("%s of %.0f MiB: %.2f GB/s%s\n", names[kind], (double)b->bytes / (1 << 20),
           moved / best * 1e-9, kind < 2 ? "" : " (read and written)");
    return BERYL_OK;
}

int main(int argc, char **argv) {
    bench b = {.bytes = (uint64_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 64) << 20};
    base_heap_init(&b.heap, NULL);
    double t0 = base_time();
    beryl_status status = device_open(&b.heap, NULL, argc > 1 ? argv[1] : NULL, &b.d, &b.error);
    if (status) return fail("open", &b.error);
    double t1 = base_time();
    const device_caps *caps = device_caps_of(b.d);
    device_cache_forgo(b.d);
    if (!b.bytes || b.bytes > caps->binding_max) b.bytes = caps->binding_max & ~(UINT64_C(1048575));
    if (b.bytes > UINT64_C(1) << 33) b.bytes = UINT64_C(1) << 33;
    status = make(&b);
    double t2 = base_time();
    printf("%s:%u %s, %s\nopened in %.1f ms, first program and %.0f MiB in %.1f ms\n",
           caps->backend, caps->index, caps->name, caps->driver, (t1 - t0) * 1e3,
           (double)b.bytes / (1 << 19), (t2 - t1) * 1e3);
    if (!status) status = bench_round_trip(&b);
    if (!status) status = bench_dispatches(&b, false);
    if (!status) status = bench_dispatches(&b, true);
    for (int kind = 0; kind < 4 && !status; kind++) status = bench_bytes(&b, kind);
    device_close(b.d);
    return status ? fail("stopped", &b.error) : 0;
}
