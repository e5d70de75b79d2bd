/* main.c - the program: which command, and its exit code. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "cli.h"

#include "base/thread.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static int dispatch(cli *c) {
    switch (c->args.command) {
    case COMMAND_RUN: return run_main(c);
    case COMMAND_SHOW: return show_main(c);
    case COMMAND_LIST: return list_main(c);
    case COMMAND_DEVICES: return devices_main(c);
    case COMMAND_BENCH: return bench_main(c);
    case COMMAND_TOKENIZE: return tokenize_main(c);
    case COMMAND_RENDER: return render_main(c);
    case COMMAND_LOGITS: return logits_main(c);
    case COMMAND_EMBED_MEDIA: return embed_media_main(c);
    case COMMAND_PERPLEXITY: return perplexity_main(c);
    case COMMAND_SELFTEST: return selftest_main(c);
    case COMMAND_EXPLAIN: return explain_main(c);
    case COMMAND_TRACE: return trace_main(c);
    case COMMAND_TUNE: return tune_main(c);
    case COMMAND_TRAIN: return train_main(c);
    case COMMAND_BENCH_OPS: return bench_ops_main(c);
    case COMMAND_EVAL: return eval_main(c);
    case COMMAND_OPS: return ops_main(c);
    case COMMAND_MERGE: return merge_main(c);
    case COMMAND_ADAPTER: return adapter_main(c);
    case COMMAND_HELP: return help_main(c);
    case COMMAND_NONE: break;
    }
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    cli c = {.verbose = 0};
    /* Characters only: numbers keep their point. The line editor needs UTF-8 whatever the locale.
     */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8")) {
        if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "en_US.UTF-8");
    }
    base_heap_init(&c.heap, NULL);
    term_init(&c.term);
    c.started = base_time();
    cli_signals_begin();
    char message[512] = "";
    int code = CLI_OK;
    if (argc < 2) {
        help_overview(stderr);
        return CLI_USAGE;
    }
    if (!args_parse(&c.args, &c.heap, argc, argv, message, sizeof message)) {
        code = cli_usage(&c, "%s", message);
    } else if (c.args.version || args_has(&c.args, FLAG_VERSION)) {
        printf("beryl %s\n", beryl_version());
    } else if (args_has(&c.args, FLAG_HELP)) {
        if (c.args.command == COMMAND_HELP) {
            help_overview(stdout);
        } else {
            help_command(stdout, c.args.command);
        }
    } else {
        c.verbose = c.args.values[FLAG_VERBOSE].count;
        c.json = args_has(&c.args, FLAG_JSON);
        code = dispatch(&c);
    }
    code = cli_flush(&c, code);
    args_fini(&c.args, &c.heap);
    cli_end_check();
    return code;
}
