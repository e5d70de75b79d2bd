/* lora.c - adapters of the command line and of the chat: PATH[:SCALE], opened and given to
 * sessions. */
#include "base/file.h"
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path that ends in a colon and a number has a scale, unless there is such a file. */
static size_t split(const char *given, float *scale) {
    const char *colon = strrchr(given, ':');
    char *end = NULL;
    *scale = 1;
    if (!colon || !colon[1] || base_file_exists(given)) return strlen(given);
    const double number = strtod(colon + 1, &end);
    if (*end) return strlen(given);
    *scale = (float)number;
    return (size_t)(colon - given);
}

char *cli_lora_split(cli *c, const char *given, size_t *size, float *scale) {
    *size = split(given, scale);
    char *path = base_heap_take(&c->heap, *size + 1);
    if (path) memcpy(path, given, *size);
    return path;
}

beryl_status cli_lora_add(cli *c, beryl_engine *engine, const char *given, beryl_error *error) {
    cli_lora *l = &c->lora;
    if (l->n == CLI_LORA_MAX) {
        snprintf(error->message, sizeof error->message, "%d adapters at most", CLI_LORA_MAX);
        return BERYL_BAD_INPUT;
    }
    size_t size;
    char *path = cli_lora_split(c, given, &size, &l->scales[l->n]);
    if (!path) return BERYL_NO_MEMORY;
    const beryl_adapter_options options = {.size = sizeof options, .path = path};
    const beryl_status status = beryl_adapter_open(engine, &options, &l->adapters[l->n], error);
    base_heap_give(&c->heap, path, size + 1);
    if (!status) l->n++;
    return status;
}

beryl_status cli_lora_open(cli *c, beryl_engine *engine, beryl_error *error) {
    beryl_status status = BERYL_OK;
    c->lora.n = 0;
    for (size_t i = 0; !status && i < c->args.n_files; i++)
        status = cli_lora_add(c, engine, c->args.files[i], error);
    return status;
}

void cli_lora_close(cli *c, size_t keep) {
    while (c->lora.n > keep) beryl_adapter_close(c->lora.adapters[--c->lora.n]);
}

beryl_status cli_lora_give(cli *c, beryl_session *session, beryl_error *error) {
    return beryl_session_adapters(session, c->lora.adapters, c->lora.scales, c->lora.n, error);
}

beryl_status cli_session_open(cli *c, beryl_engine *engine, beryl_session **session,
                              beryl_error *error) {
    const beryl_status status = beryl_session_open(engine, NULL, session, error);
    return status ? status : cli_lora_give(c, *session, error);
}
