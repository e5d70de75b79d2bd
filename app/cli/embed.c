/* embed.c - `beryl embed-media`: the soft tokens of pictures and sound, as a NumPy file. */
#include "media.h"

#include <errno.h>
#include <string.h>

/* Rows of all files, each once, one after the other. */
static int write_rows(cli *c, const media_store *s, const char *path) {
    size_t n_row = 0, n_column = 0, n;
    const float *soft;
    for (size_t i = 0; i < s->items.count; i++) {
        beryl_media_soft(s->items.data[i].media, NULL, &n, &n_column);
        n_row += n;
    }
    FILE *to = strcmp(path, "-") ? fopen(path, "wb") : stdout;
    if (!to) return cli_fail(c, "cannot write %s: %s", path, strerror(errno));
    cli_npy_head(to, n_row, n_column);
    for (size_t i = 0; i < s->items.count; i++) {
        beryl_media_soft(s->items.data[i].media, &soft, &n, NULL);
        fwrite(soft, sizeof *soft * n_column, n, to);
    }
    const bool failed = ferror(to);
    if ((to != stdout && fclose(to)) || failed) {
        const int cause = errno;
        if (to != stdout) remove(path);
        return cli_fail(c, "cannot write %s: %s", path, strerror(cause));
    }
    return CLI_OK;
}

int embed_media_main(cli *c) {
    const args *a = &c->args;
    const char *path = args_text(a, FLAG_OUT);
    size_t n_used;
    if (!path) return cli_usage(c, "say where to write them: --out FILE.npy");
    if (!a->n_media) return cli_usage(c, "say of what: --image FILE or --audio FILE");
    const cli_open open = {.model = cli_model(c, &n_used)};
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    media_store store;
    base_text parts;
    beryl_error error = {0};
    media_init(&store, c, engine);
    base_text_init(&parts, &c->heap);
    int code = cli_report(c, media_add_flags(&store, &parts, &error), &error);
    if (!code) code = write_rows(c, &store, path);
    base_text_fini(&parts);
    media_fini(&store);
    beryl_engine_close(engine);
    return code;
}
