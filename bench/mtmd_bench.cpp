/* mtmd_bench.cpp - how long llama.cpp's towers take for what `beryl bench --pictures --sounds` measures: the calls of its
 * mtmd_encode_chunk, without a language model. bench/mtmd_bench.mk builds it from llama-cpp-python's source.
 *
 *   mtmd_bench FILE.gguf [RUNS [TOKENS [SECONDS]]]   a picture of so many soft tokens, a clip; milliseconds
 */
#include "clip-impl.h"
#include "clip-model.h"
#include "clip.h"
#include "ggml-backend.h"
#include "mtmd-audio.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

enum { UNIT = 48, RATE = 16000, THREADS = 8 };

static double now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(since).count();
}

static void tell(const char *what, std::vector<double> ms) {
    const double first = ms[0];
    std::sort(ms.begin(), ms.end());
    printf("%s: first %.2f, least %.2f, median %.2f, most %.2f ms\n", what, first, ms[0],
           ms[ms.size() / 2], ms.back());
}

static uint32_t drawn(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static bool encode(clip_ctx *ctx, const clip_image_f32 &x, bool is_audio) {
    clip_image_f32_batch batch;
    batch.is_audio = is_audio;
    batch.entries.push_back(x);
    std::vector<float> soft((size_t)clip_n_output_tokens(ctx, &x) * clip_n_mmproj_embd(ctx));
    return clip_image_batch_encode(ctx, THREADS, &batch, soft);
}

static bool see(clip_ctx *ctx, int runs, int tokens) {
    int down = (int)std::sqrt((double)tokens);
    uint32_t state = 1;
    while (tokens % down) down--;
    clip_image_f32 picture;
    picture.set_size({UNIT * (tokens / down), UNIT * down}, false, false);
    std::vector<float> pixels((size_t)UNIT * UNIT * tokens * 3);
    for (float &x : pixels) x = (float)(drawn(&state) & 255) / 255;
    picture.cpy_buf(pixels);
    std::vector<double> ms;
    for (int i = 0; i < runs; i++) {
        const double begun = now();
        if (!encode(ctx, picture, false)) return false;
        ms.push_back(now() - begun);
    }
    tell("picture", ms);
    return true;
}

static bool hear(clip_ctx *ctx, int runs, int seconds) {
    uint32_t state = 1;
    std::vector<float> samples((size_t)RATE * seconds);
    for (float &x : samples) x = (float)(drawn(&state) & 0xffff) / 65536 - 0.5f;
    mtmd_audio_preprocessor_gemma4a front(ctx);
    front.initialize();
    std::vector<double> tower, all;
    for (int i = 0; i < runs; i++) {
        const double begun = now();
        std::vector<mtmd_audio_mel> mel;
        if (!front.preprocess(samples.data(), samples.size(), mel)) return false;
        clip_image_f32 frames;
        frames.set_size({(int)mel[0].n_len, (int)mel[0].n_mel}, false, true);
        frames.cpy_buf(mel[0].data);
        const double made = now();
        if (!encode(ctx, frames, true)) return false;
        tower.push_back(now() - made);
        all.push_back(now() - begun);
    }
    tell("sound, from its frames", tower);
    tell("sound, from its samples", all);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: mtmd_bench FILE.gguf [RUNS [TOKENS [SECONDS]]]\n"), 2;
    const int runs = argc > 2 ? atoi(argv[2]) : 25;
    ggml_backend_load_all();
    clip_context_params params = {};
    params.use_gpu = true;
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    params.warmup = true;
    const clip_init_result towers = clip_init(argv[1], params);
    bool good = towers.ctx_v || towers.ctx_a;
    if (towers.ctx_v) good &= see(towers.ctx_v, runs, argc > 3 ? atoi(argv[3]) : 280);
    if (towers.ctx_a) good &= hear(towers.ctx_a, runs, argc > 4 ? atoi(argv[4]) : 30);
    return good ? 0 : 1;
}
