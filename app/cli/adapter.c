/* adapter.c - files of adapters: other forms of them, and models that they are folded into. */
#include "cli.h"

#include <string.h>

int adapter_main(cli *c) {
    const char *const *given = c->args.positional, *type = args_text(&c->args, FLAG_VALUES);
    char name[8] = ""; /* "F16" of "f16" */
    for (size_t i = 0; type && type[i] && i + 1 < sizeof name; i++)
        name[i] = (char)(type[i] >= 'a' ? type[i] - 'a' + 'A' : type[i]);
    if (strcmp(given[0], "convert")) return cli_usage(c, "adapter takes: convert IN OUT --to FORM");
    if (!args_has(&c->args, FLAG_TO))
        return cli_usage(c, "--to says which form: peft, gguf, rullama");
    const beryl_convert_options options = {.size = sizeof options,
                                           .from = given[1],
                                           .to = given[2],
                                           .form = args_text(&c->args, FLAG_TO),
                                           .type = type ? name : NULL};
    beryl_error error = {0};
    return cli_report(c, beryl_adapter_convert(&options, &error), &error);
}

static bool progress(void *user, uint64_t done, uint64_t total) {
    cli *c = user;
    term_progress(&c->term, "writing", done, total, NULL);
    return !cli_interrupted();
}

int merge_main(cli *c) {
    const size_t n = c->args.n_files;
    char *paths[CLI_LORA_MAX] = {0};
    float scales[CLI_LORA_MAX];
    size_t sizes[CLI_LORA_MAX], n_used;
    beryl_error error = {0};
    if (!n) return cli_usage(c, "merge needs an adapter: --lora PATH[:SCALE]");
    if (!args_has(&c->args, FLAG_MERGE_OUT)) return cli_usage(c, "merge needs --out FILE.gguf");
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && i < n; i++) {
        paths[i] = cli_lora_split(c, c->args.files[i], &sizes[i], &scales[i]);
        if (!paths[i]) status = BERYL_NO_MEMORY;
    }
    const beryl_merge_options options = {.size = sizeof options,
                                         .model = cli_model(c, &n_used),
                                         .out = args_text(&c->args, FLAG_MERGE_OUT),
                                         .adapters = (const char *const *)paths,
                                         .scales = scales,
                                         .n_adapter = n,
                                         .progress = progress,
                                         .user = c,
                                         .log = cli_log(c)};
    cli_chat_begin(); /* Ctrl-C is told to `progress` */
    if (!status) status = beryl_merge(&options, &error);
    term_clear(&c->term);
    for (size_t i = 0; i < n && paths[i]; i++) base_heap_give(&c->heap, paths[i], sizes[i] + 1);
    return cli_report(c, status, &error);
}
