/* help.c - everything that is told about commands and flags, made from the tables in args.h and
 * chat.h: help texts, man pages, Markdown, completions for bash, zsh and fish. */
#include "chat.h"

#include <string.h>

/* What the tables cannot say. Paragraphs are parted by an empty line; lines that begin with two
 * blanks are examples. */
static const char *const details[COMMAND_COUNT] = {
    [COMMAND_RUN] =
        "Without a prompt, on a terminal, it opens a chat: Ctrl-C stops an answer, Ctrl-D ends the "
        "chat. A backslash at "
        "a line's end continues the message on the next line; lines between two \"\"\" are one "
        "message. With a "
        "prompt, with piped standard input or with --file it answers once and stops.\n\n"
        "A single argument that has a space in it and names no file is a prompt for the built-in "
        "model.\n\n"
        "  beryl run\n"
        "  beryl run gemma4:e2b \"Why is the sky blue?\"\n"
        "  beryl run model.gguf -f letter.txt \"Summarise this:\"\n"
        "  git diff | beryl run model.gguf --system \"Write a commit title.\"\n"
        "  beryl run model.gguf --ids 2,10,11 --greedy --ignore-eos --max-tokens 8 --print-ids",
    [COMMAND_SHOW] = "Of an ONNX file: its inputs, outputs and operators.\n\n"
                     "  beryl show model.gguf --tensors\n"
                     "  beryl show model.onnx",
    [COMMAND_LIST] =
        "Finds the built-in model, the files in Beryl's own folder, and an Ollama store.",
    [COMMAND_DEVICES] = "The first one that runs programs is taken unless --device of another "
                        "command or $BERYL_DEVICE says otherwise. "
                        "Under each: its language, types, subgroups, products, matrix units; with "
                        "--verbose how large "
                        "workgroups and buffers may be. A backend that finds nothing says why.",
    [COMMAND_BENCH] =
        "Rows are named as users of llama-bench know them: pp512 reads a prompt of 512 tokens, "
        "tg128 generates 128, "
        "tg128 @ d4096 after 4,096 tokens of context, b16 in 16 sessions at once. Every number is "
        "a mean with its "
        "standard deviation. -p, -n, -d and -b take lists. Bytes and dispatches are a token's, and "
        "the percentage tells "
        "how much of the bandwidth measured on this device the reading of weights makes up. "
        "Of an ONNX file: the time of a run, on inputs that are drawn.\n\n"
        "  beryl bench model.gguf -p 512,4096 -n 128 -d 0,16384 -r 5 -o md\n"
        "  beryl bench model.gguf -p 0 -n 128 -b 1,16\n"
        "  beryl bench model.onnx --extent batch=1 -r 20",
    [COMMAND_TOKENIZE] = "Prints ids separated by commas, without BOS. A file that holds only a "
                         "vocabulary serves as MODEL.\n\n"
                         "  beryl tokenize model.gguf --text \"Hello there\"\n"
                         "  beryl tokenize model.gguf --decode 9259,993",
    [COMMAND_RENDER] = "  beryl render model.gguf --chat conversation.json",
    [COMMAND_LOGITS] = "The file holds float32 [n_token, n_vocab], after the final soft cap.\n\n"
                       "  beryl logits model.gguf --ids 2,10,11 --out logits.npy",
    [COMMAND_PERPLEXITY] = "The text is cut into pieces of --piece tokens; the first token of each "
                           "is replaced by BOS, and the tokens of "
                           "its second half are scored. A last piece that is not full is left out, "
                           "unless it is the only one.\n\n"
                           "  beryl perplexity model.gguf stories.txt --piece 512",
    [COMMAND_SELFTEST] = "Each kernel is compared with its reference function on made-up numbers: "
                         "first those of the model's plans, then every operation "
                         "with every type of weights and caches in small shapes.",
    [COMMAND_EXPLAIN] =
        "Numbers at the beginning of a line are what --op takes. Nothing is run; a GPU is not "
        "needed: --device dummy plans for a small WebGPU device, and any other device shows its "
        "own kernels. An ONNX file is a model too. Instead of one, a file may hold a graph as text "
        "(a line a value, like "
        "'%1 = input F32 [4 64] \"x\"'), or one kernel in printed IR, which is shown after the "
        "passes or in "
        "the device's language.\n\n"
        "  beryl explain model.gguf\n"
        "  beryl explain model.gguf --stage plan --plan prefill --device dummy\n"
        "  beryl explain model.gguf --stage code --op 3 --device host\n"
        "  beryl explain model.onnx --extent batch=1 --stage plan\n"
        "  beryl explain kernel.ir --stage code --device opencl",
    [COMMAND_TRACE] =
        "Open the file at ui.perfetto.dev or in chrome://tracing. One track has each dispatch with "
        "the time that the device took for it, its grid, bytes and GB/s; the other one what the "
        "host did. Timestamps cost a little themselves: a run takes longer than without. Where the "
        "device gives none, it says so, and each run is one event by the host's clock.\n\n"
        "  beryl trace model.gguf --out step.json\n"
        "  beryl trace model.gguf --plan prefill --device opencl --out prefill.json",
    [COMMAND_TUNE] =
        "Kernels of matrix products have forms (how many lanes share a row, how many rows a lane "
        "takes, and so on), chosen by a rule that suits most devices. This command tries others on "
        "the device, inside the steps that generate tokens, takes those that win by more than 2 %, "
        "checks that they compute the same, and keeps them in $XDG_CACHE_HOME/beryl/tune-*.json, "
        "one "
        "file for each device and driver. It also tries lanes, vectors, rows and "
        "tiles of what stands between and beside products (schedules.txt). Every later run reads "
        "these files; --no-cache neither reads nor writes them. Ctrl-C keeps what was found so "
        "far.\n\n"
        "  beryl tune model.gguf\n"
        "  beryl tune model.gguf --device cuda --tries 40 --again\n"
        "  beryl tune --list",
    [COMMAND_BENCH_OPS] =
        "Times each operation on its own, on made-up numbers, and says what part that is of what "
        "the device can do, measured in the same run: of the bandwidth of reading where an "
        "operation "
        "mostly reads, else of copying, and of the rate of 32-bit multiply-adds (integer and "
        "16-bit "
        "products may be above it). On GPUs tensors are larger than the caches; on processors they "
        "are "
        "small, and caches make parts above 100 % of them. --shape takes as many "
        "numbers as the operation has.\n\n"
        "  beryl bench-ops\n"
        "  beryl bench-ops linear --type Q4_K --shape 8192,1,4096 --device cuda\n"
        "  beryl bench-ops softmax rms_norm --shape 8192,4096 -o csv",
    [COMMAND_EVAL] =
        "Shapes that the file leaves open are those of the inputs. What has to be known while the "
        "graph is built (shapes, axes, trip counts) is taken from the inputs too. An operator that "
        "is not supported is named with its node; 'beryl show' lists all of a file.\n\n"
        "  beryl eval model.onnx --input x=x.npy --output y.npz\n"
        "  beryl eval model.onnx --input ids=ids.npy --input mask=mask.npy --device host",
    [COMMAND_TRAIN] =
        "The model stays as it is, of any type; the adapter is F32. DATA is JSONL: a line is a "
        "conversation (\"messages\", or ShareGPT's \"conversations\"), {\"prompt\", "
        "\"completion\"}, {\"text\"} or {\"tokens\", \"mask\", \"picture\", \"sound\"}; or it is "
        "plain text. Of conversations the answers are learned. Their pictures and sound are held "
        "as OpenAI's parts hold them, or files beside DATA: {\"type\": \"image\" or \"audio\", "
        "\"path\": FILE}; those of tokens are files, a picture resized already. Rows longer than "
        "--context are refused. Ctrl-C "
        "ends the training and keeps what was learned; --resume goes on, bit for bit on the same "
        "device, and so it does after the program was killed.\n\n"
        "A line of --log has step (from 0), loss, grad_norm (before clipping), lr, targets, "
        "tokens, seconds, and valid_loss where it was measured. --json prints one object: rows, "
        "valid_rows, tokens and targets of the data, parameters, bytes (of device memory, beside "
        "the model), steps, step (done); and unless --dry-run: loss (of the last step), "
        "valid_loss, best_loss, best_step, tokens_per_second, adapter and checkpoint (paths), and "
        "with --sample: sample (question, before, after). What was not measured is null.\n\n"
        "  beryl train chats.jsonl --out adapter --epochs 3 --batch 4\n"
        "  beryl run --lora adapter",
    [COMMAND_MERGE] =
        "What an adapter changes keeps its type where that can be rounded anew (F32, F16, BF16, "
        "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K), else it becomes F16, which is told; the "
        "rest is copied.\n\n"
        "  beryl merge model.gguf --lora adapter:0.5 --out merged.gguf",
    [COMMAND_ADAPTER] =
        "IN is what --lora takes elsewhere; OUT is a file, of --to peft a folder.\n\n"
        "  beryl adapter convert adapter adapter.gguf --to gguf --type f16",
    [COMMAND_OPS] = NULL,
    [COMMAND_HELP] = NULL,
};

const chat_command_info chat_commands[CHAT_COUNT] = {
#define X(id, name, arguments, what) {name, arguments, what},
    CHAT_COMMAND_LIST(X)
#undef X
};

/* Prints `text` wrapped at 80 columns; the first line begins at column `at`, the others are
 * indented by `indent`. */
static void wrap(FILE *to, const char *text, int at, int indent) {
    enum { WIDTH = 80 };
    int column = at;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " "), blank = p != text;
        if (blank && column + blank + n > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
            blank = 0;
        }
        fprintf(to, "%*s%.*s", blank, "", n, p);
        column += blank + n;
        p += n + (p[n] == ' ');
    }
    putc('\n', to);
}

static bool flag_of(args_flag flag, args_command command) {
    return args_flags[flag].commands & (1u << command);
}

/* "-n, --max-tokens N" */
static void flag_text(char *to, size_t size, const args_flag_info *info) {
    char letter[8] = "    ";
    if (info->letter) snprintf(letter, sizeof letter, "-%c, ", info->letter);
    snprintf(to, size, "%s--%s%s%s", letter, info->name, *info->value ? " " : "", info->value);
}

static void details_print(FILE *to, const char *text) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        char line[1200];
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        if (n && *p != ' ') {
            wrap(to, line, 0, 0);
        } else {
            fprintf(to, "%s\n", line);
        }
        p += n + (p[n] == '\n');
    }
}

void help_command(FILE *to, args_command command) {
    enum { COLUMN = 30 };
    const args_command_info *info = &args_commands[command];
    fprintf(to, "%s.\n\nusage: beryl %s%s%s%s\n", info->what, info->name,
            *info->arguments ? " " : "", info->arguments, " [FLAGS]");
    if (details[command]) {
        putc('\n', to);
        details_print(to, details[command]);
    }
    fputs("\nflags:\n", to);
    for (int i = 0; i < FLAG_COUNT; i++) {
        if (!flag_of((args_flag)i, command)) continue;
        char left[80];
        flag_text(left, sizeof left, &args_flags[i]);
        int n = fprintf(to, "  %s", left);
        if (n >= COLUMN) {
            putc('\n', to);
            n = 0;
        }
        fprintf(to, "%*s", COLUMN - n, "");
        wrap(to, args_flags[i].what, COLUMN, COLUMN);
    }
    if (command != COMMAND_RUN) return;
    fputs("\nin the chat:\n", to);
    for (int i = 0; i < CHAT_COUNT; i++) {
        int n = fprintf(to, "  %s %s", chat_commands[i].name, chat_commands[i].arguments);
        fprintf(to, "%*s", COLUMN - n, "");
        wrap(to, chat_commands[i].what, COLUMN, COLUMN);
    }
}

void help_overview(FILE *to) {
    fputs("Beryl runs Gemma 4 models from GGUF files on your own GPU.\n\n"
          "usage: beryl COMMAND [ARGUMENTS] [FLAGS]\n\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const args_command_info *info = &args_commands[i];
        int n = fprintf(to, "  %s %s", info->name, info->arguments);
        fprintf(to, "%*s%s\n", n < 26 ? 26 - n : 1, "", info->what);
    }
    fputs("\n'beryl help COMMAND' tells its flags; 'beryl run' alone opens a chat with the "
          "built-in model.\n",
          to);
}

/* ---- man page -------------------------------------------------------------------------------- */

/* Text with what roff would read as its own escaped. */
static void roff(FILE *to, const char *text, size_t size) {
    bool start = true;
    for (size_t i = 0; i < size; i++) {
        if (start && (text[i] == '.' || text[i] == '\'')) fputs("\\&", to);
        if (text[i] == '\\') {
            fputs("\\e", to);
        } else if (text[i] == '-') {
            fputs("\\-", to);
        } else {
            putc(text[i], to);
        }
        start = text[i] == '\n';
    }
}

static void roff_text(FILE *to, const char *text) {
    roff(to, text, strlen(text));
}

static void roff_details(FILE *to, const char *text) {
    bool example = false;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        bool is_example = *p == ' ';
        if (is_example && !example) fputs(".PP\n.nf\n", to);
        if (!is_example && example) fputs(".fi\n", to);
        if (!n) {
            fputs(".PP\n", to);
        } else {
            roff(to, p, n);
            putc('\n', to);
        }
        example = is_example;
        p += n + (p[n] == '\n');
    }
    if (example) fputs(".fi\n", to);
}

static void roff_flag(FILE *to, const args_flag_info *info) {
    fputs(".TP\n", to);
    if (info->letter) fprintf(to, "\\fB\\-%c\\fR, ", info->letter);
    fputs("\\fB\\-\\-", to);
    roff_text(to, info->name);
    fputs("\\fR", to);
    if (*info->value) {
        fputs(" \\fI", to);
        roff_text(to, info->value);
        fputs("\\fR", to);
    }
    putc('\n', to);
    roff_text(to, info->what);
    fputs(".\n", to);
}

static void man_chat(FILE *to) {
    for (int i = 0; i < CHAT_COUNT; i++) {
        fprintf(to, ".TP\n\\fB%s\\fR %s\n", chat_commands[i].name, chat_commands[i].arguments);
        roff_text(to, chat_commands[i].what);
        fputs(".\n", to);
    }
}

static void man_head(FILE *to, const char *name, const char *what) {
    fprintf(to, ".TH %s 1 \"\" \"beryl %s\" \"User Commands\"\n.SH NAME\n", name, beryl_version());
    roff_text(to, name);
    fputs(" \\- ", to);
    roff_text(to, what);
    putc('\n', to);
}

static void man_usage(FILE *to, args_command command) {
    fprintf(to, "\\fBberyl %s\\fR ", args_commands[command].name);
    roff_text(to, args_commands[command].arguments);
    fputs(" [FLAGS]\n", to);
}

static void man_command(FILE *to, args_command command) {
    const args_command_info *info = &args_commands[command];
    char name[32];
    snprintf(name, sizeof name, "beryl-%s", info->name);
    man_head(to, name, info->what);
    fputs(".SH SYNOPSIS\n", to);
    man_usage(to, command);
    fputs(".SH DESCRIPTION\n", to);
    roff_text(to, info->what);
    fputs(".\n", to);
    if (details[command]) {
        fputs(".PP\n", to);
        roff_details(to, details[command]);
    }
    fputs(".SH OPTIONS\n", to);
    for (int i = 0; i < FLAG_COUNT; i++)
        if (flag_of((args_flag)i, command)) roff_flag(to, &args_flags[i]);
    if (command == COMMAND_RUN) {
        fputs(".SH IN THE CHAT\n", to);
        man_chat(to);
    }
    fputs(".SH SEE ALSO\n.BR beryl (1)\n", to);
}

/* Flags that every command with a model on a device has stand apart. */
static bool flag_common(args_flag flag) {
    return (args_flags[flag].commands & ON_ENGINE) == ON_ENGINE;
}

static void man_overview(FILE *to) {
    man_head(to, "beryl", "run Gemma 4 models from GGUF files on your own GPU");
    fputs(".SH SYNOPSIS\n\\fBberyl\\fR COMMAND [ARGUMENTS] [FLAGS]\n.SH DESCRIPTION\n"
          "Beryl is an engine for Gemma 4 that reaches any GPU through WebGPU. \\fBberyl run\\fR "
          "alone opens a chat with "
          "the built\\-in model.\n.SH COMMANDS\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fputs(".SS ", to);
        man_usage(to, (args_command)i);
        roff_text(to, args_commands[i].what);
        fputs(".\n", to);
        if (details[i]) {
            fputs(".PP\n", to);
            roff_details(to, details[i]);
        }
        for (int k = 0; k < FLAG_COUNT; k++)
            if (flag_of((args_flag)k, (args_command)i) &&
                !((ON_ENGINE & (1u << i)) && flag_common((args_flag)k)))
                roff_flag(to, &args_flags[k]);
    }
    fputs(".SH COMMON FLAGS\nOf ", to);
    const char *before = "";
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!(ON_ENGINE & (1u << i))) continue;
        fprintf(to, "%s%s", before, args_commands[i].name);
        before = ", ";
    }
    fputs(":\n", to);
    for (int i = 0; i < FLAG_COUNT; i++)
        if (flag_common((args_flag)i)) roff_flag(to, &args_flags[i]);
    fputs(".SH IN THE CHAT\n", to);
    man_chat(to);
    fputs(".SH ENVIRONMENT\n"
          ".TP\n\\fBBERYL_DEVICE\\fR\nThe device that is taken where \\-\\-device is not given.\n"
          ".TP\n\\fBBERYL_CAPS\\fR\nWhat a device shall do without, for tests: no\\-f16, "
          "no\\-subgroups, no\\-dot, no\\-timestamps, checked, hard, min, with commas between.\n"
          ".TP\n\\fBBERYL_MODELS\\fR\nWhere models are found by name, if not in "
          "$XDG_DATA_HOME/beryl/models (default ~/.local/share).\n"
          ".TP\n\\fBBERYL_WGPU\\fR\nThe wgpu\\-native library to open, instead of Beryl's own.\n"
          ".TP\n\\fBNO_COLOR\\fR\nIf set and not empty, no colours are shown.\n"
          ".TP\n\\fBOLLAMA_MODELS\\fR\nWhere the Ollama store lies, if not in ~/.ollama/models.\n"
          ".SH FILES\n"
          ".TP\n\\fI$XDG_STATE_HOME/beryl/history\\fR\nThe lines of earlier chats (default "
          "~/.local/state).\n"
          ".TP\n\\fI$XDG_CACHE_HOME/beryl/kernels\\-*.json\\fR\nWhich kernels were right on an "
          "adapter "
          "with its driver (default ~/.cache).\n"
          ".TP\n\\fI$XDG_CACHE_HOME/beryl/tune\\-*.json\\fR\nWhat \\fBberyl tune\\fR found for a "
          "device "
          "(default ~/.cache).\n"
          ".SH EXIT STATUS\n0 done, 1 failed or stopped, 2 wrong use.\n"
          ".SH SEE ALSO\n.BR libberyl (3)\n",
          to);
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void markdown_escape(FILE *to, const char *text) {
    for (; *text; text++) {
        if (*text == '|' || *text == '<') putc('\\', to);
        putc(*text, to);
    }
}

static void markdown(FILE *to) {
    fputs("# Commands\n\nMade by `beryl help --markdown`.\n\nExit codes: 0 done, 1 failed or "
          "stopped, 2 wrong use.\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const args_command_info *info = &args_commands[i];
        fprintf(to, "\n## beryl %s%s%s\n\n%s.\n", info->name, *info->arguments ? " " : "",
                info->arguments, info->what);
        if (details[i]) {
            putc('\n', to);
            for (const char *p = details[i]; *p;) {
                size_t n = strcspn(p, "\n");
                fprintf(to, "%s%.*s\n", *p == ' ' ? "  " : "", (int)n, p); /* four blanks: code */
                p += n + (p[n] == '\n');
            }
        }
        fputs("\n| flag | what |\n| --- | --- |\n", to);
        for (int k = 0; k < FLAG_COUNT; k++) {
            if (!flag_of((args_flag)k, (args_command)i)) continue;
            const args_flag_info *flag = &args_flags[k];
            fputs("| `", to);
            if (flag->letter) fprintf(to, "-%c`, `", flag->letter);
            fprintf(to, "--%s", flag->name);
            if (*flag->value) putc(' ', to);
            for (const char *p = flag->value; *p; p++)
                fputs(*p == '|' ? "\\|" : (char[]){*p, 0}, to);
            fputs("` | ", to);
            markdown_escape(to, flag->what);
            fputs(" |\n", to);
        }
        if (i != COMMAND_RUN) continue;
        fputs("\n| in the chat | what |\n| --- | --- |\n", to);
        for (int k = 0; k < CHAT_COUNT; k++) {
            fprintf(to, "| `%s`", chat_commands[k].name);
            if (*chat_commands[k].arguments) putc(' ', to);
            markdown_escape(to, chat_commands[k].arguments);
            fputs(" | ", to);
            markdown_escape(to, chat_commands[k].what);
            fputs(" |\n", to);
        }
    }
}

/* ---- completions ----------------------------------------------------------------------------- */

/* The words of "a|b|c" with `between` between them. */
static void words_print(FILE *to, const char *words, char between) {
    for (; *words; words++) putc(*words == '|' ? between : *words, to);
}

static bool takes_file(args_command command) {
    return (ON_MODEL & (1u << command)) || command == COMMAND_PERPLEXITY;
}

static void completion_bash(FILE *to) {
    fputs("# bash completion of beryl; made by 'beryl help --completion bash'\n"
          "_beryl() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
          "command=${COMP_WORDS[1]} flags=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(to, "%s ", args_commands[i].name);
    fputs("--version --help\" -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command:$prev in\n",
          to);
    for (int i = 0; i < FLAG_COUNT; i++) {
        const args_flag_info *info = &args_flags[i];
        if (info->kind != ARGS_CHOICE) continue;
        fprintf(to, "    *:--%s)\n        COMPREPLY=($(compgen -W \"", info->name);
        words_print(to, info->value, ' ');
        fputs("\" -- \"$cur\"))\n        return ;;\n", to);
    }
    fputs("    esac\n    case $command in\n", to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(to, "    %s) flags=\"", args_commands[i].name);
        for (int k = 0; k < FLAG_COUNT; k++)
            if (flag_of((args_flag)k, (args_command)i)) fprintf(to, "--%s ", args_flags[k].name);
        fputs("\" ;;\n", to);
    }
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
          "    elif [ \"$command\" = help ]; then\n"
          "        COMPREPLY=($(compgen -W \"",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(to, "%s ", args_commands[i].name);
    fputs("\" -- \"$cur\"))\n"
          "    else\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _beryl beryl\n",
          to);
}

/* A text inside single quotes of zsh or fish; brackets and colons have a meaning in zsh's
 * specifications. */
static void quoted(FILE *to, const char *text, bool zsh) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(zsh ? "'\\''" : "\\'", to);
        } else {
            if (zsh && strchr("[]:\\", *text)) putc('\\', to);
            putc(*text, to);
        }
    }
}

static void completion_zsh(FILE *to) {
    fputs("#compdef beryl\n"
          "# zsh completion of beryl; made by 'beryl help --completion zsh'\n"
          "_beryl() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(to, "        '%s:", args_commands[i].name);
        quoted(to, args_commands[i].what, true);
        fputs("'\n", to);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $command in\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(to, "    %s)\n        _arguments -s", args_commands[i].name);
        for (int k = 0; k < FLAG_COUNT; k++) {
            const args_flag_info *info = &args_flags[k];
            if (!flag_of((args_flag)k, (args_command)i)) continue;
            for (int form = info->letter ? 0 : 1; form < 2; form++) {
                fputs(" \\\n            '", to);
                if (form == 0) {
                    fprintf(to, "-%c", info->letter);
                } else {
                    fprintf(to, "--%s", info->name);
                }
                putc('[', to);
                quoted(to, info->what, true);
                putc(']', to);
                if (info->kind == ARGS_CHOICE) {
                    fputs(":value:(", to);
                    words_print(to, info->value, ' ');
                    putc(')', to);
                } else if (info->kind == ARGS_FILE || info->kind == ARGS_FILES ||
                           info->kind == ARGS_MEDIA || (args_flag)k == FLAG_MODEL) {
                    fputs(":file:_files", to);
                } else if (info->kind != ARGS_SWITCH) {
                    fprintf(to, ":%s:", info->value);
                }
                putc('\'', to);
            }
        }
        if (takes_file((args_command)i)) fputs(" \\\n            '*:file:_files'", to);
        if (i == COMMAND_HELP)
            fputs(" \\\n            '1:command:->command' && return\n        _describe command "
                  "commands",
                  to);
        fputs(" ;;\n", to);
    }
    fputs("    esac\n}\n_beryl \"$@\"\n", to);
}

static void completion_fish(FILE *to) {
    fputs("# fish completion of beryl; made by 'beryl help --completion fish'\n"
          "complete -c beryl -n __fish_use_subcommand -f -l version -s V -d 'Print the version and "
          "stop'\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *name = args_commands[i].name;
        fprintf(to, "complete -c beryl -n __fish_use_subcommand -f -a %s -d '", name);
        quoted(to, args_commands[i].what, false);
        fputs("'\n", to);
        if (!takes_file((args_command)i)) {
            fprintf(to, "complete -c beryl -n '__fish_seen_subcommand_from %s' -f", name);
            if (i == COMMAND_HELP) {
                fputs(" -a '", to);
                for (int k = 0; k < COMMAND_COUNT; k++)
                    fprintf(to, "%s%s", k ? " " : "", args_commands[k].name);
                putc('\'', to);
            }
            putc('\n', to);
        }
        for (int k = 0; k < FLAG_COUNT; k++) {
            const args_flag_info *info = &args_flags[k];
            if (!flag_of((args_flag)k, (args_command)i)) continue;
            fprintf(to, "complete -c beryl -n '__fish_seen_subcommand_from %s' -l %s", name,
                    info->name);
            if (info->letter) fprintf(to, " -s %c", info->letter);
            if (info->kind == ARGS_CHOICE) {
                fputs(" -x -a '", to);
                words_print(to, info->value, ' ');
                putc('\'', to);
            } else if (info->kind == ARGS_FILE || info->kind == ARGS_FILES ||
                       info->kind == ARGS_MEDIA || (args_flag)k == FLAG_MODEL) {
                fputs(" -r", to);
            } else if (info->kind != ARGS_SWITCH) {
                fputs(" -x", to);
            }
            fputs(" -d '", to);
            quoted(to, info->what, false);
            fputs("'\n", to);
        }
    }
}

int help_main(cli *c) {
    const args *a = &c->args;
    args_command command = COMMAND_NONE;
    if (a->n_positional && (command = args_command_find(a->positional[0])) == COMMAND_NONE) {
        char message[512];
        args_command_unknown(a->positional[0], message, sizeof message);
        return cli_usage(c, "%s", message);
    }
    if (args_has(a, FLAG_COMPLETION)) {
        switch (a->values[FLAG_COMPLETION].integer) {
        case 0: completion_bash(stdout); break;
        case 1: completion_zsh(stdout); break;
        default: completion_fish(stdout); break;
        }
    } else if (args_has(a, FLAG_MARKDOWN)) {
        markdown(stdout);
    } else if (args_has(a, FLAG_MAN)) {
        if (command == COMMAND_NONE) {
            man_overview(stdout);
        } else {
            man_command(stdout, command);
        }
    } else if (command == COMMAND_NONE) {
        help_overview(stdout);
    } else {
        help_command(stdout, command);
    }
    return CLI_OK;
}
