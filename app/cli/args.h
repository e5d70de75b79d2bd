/* args.h - commands and flags of the program: one table each, from which parsing, help, man pages
 * and shell completions derive. Refuses unknown flags, flags of other commands and values out of
 * range. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "base/memory.h"

enum { ARGS_POSITIONAL_MAX = 32 };

/* id, name, arguments, what it does, the fewest and the most arguments */
#define ARGS_COMMAND_LIST(X)                                                                      \
    X(RUN, "run", "[MODEL] [PROMPT]",                                                             \
      "Chat with a model; with a prompt or piped standard input, answer once", 0, 2)              \
    X(SHOW, "show", "[MODEL]", "Tell what a model file holds", 0, 1)                              \
    X(LIST, "list", "", "List the models on this machine", 0, 0)                                  \
    X(DEVICES, "devices", "", "List the devices that models can run on", 0, 0)                    \
    X(BENCH, "bench", "[MODEL]", "Measure speed", 0, 1)                                           \
    X(EVAL, "eval", "MODEL.onnx", "Run an ONNX file once", 1, 1)                                  \
    X(TOKENIZE, "tokenize", "[MODEL]", "Turn text into token ids, or ids into text", 0, 1)        \
    X(RENDER, "render", "[MODEL]", "Print the prompt that a conversation becomes", 0, 1)          \
    X(LOGITS, "logits", "[MODEL]", "Write the logits of every position to a NumPy file", 0, 1)    \
    X(EMBED_MEDIA, "embed-media", "[MODEL]",                                                      \
      "Write the soft tokens of pictures and sound to a NumPy file", 0, 1)                        \
    X(PERPLEXITY, "perplexity", "[MODEL] FILE", "Measure how well a model predicts a text", 1, 2) \
    X(SELFTEST, "selftest", "[MODEL]",                                                            \
      "Check every kernel of a model, and every operation, on this device", 0, 1)                 \
    X(EXPLAIN, "explain", "[MODEL|GRAPH]",                                                        \
      "Show what becomes of a model: graph, plan, kernels, code", 0, 1)                           \
    X(TRACE, "trace", "[MODEL]", "Record where the time of a step goes, for Perfetto", 0, 1)      \
    X(TUNE, "tune", "[MODEL]", "Look for faster kernels on this device, and keep them", 0, 1)     \
    X(BENCH_OPS, "bench-ops", "[OP ...]", "Measure the speed of single operations", 0,            \
      ARGS_POSITIONAL_MAX)                                                                        \
    X(TRAIN, "train", "[MODEL] DATA", "Train a low-rank adapter on a file of examples", 1, 2)     \
    X(MERGE, "merge", "[MODEL]", "Write a model with adapters folded in", 0, 1)                   \
    X(ADAPTER, "adapter", "convert IN OUT", "Write an adapter in another form", 3, 3)             \
    X(OPS, "ops", "", "List the operations that graphs are made of", 0, 0)                        \
    X(HELP, "help", "[COMMAND]", "Tell about a command", 0, 1)

typedef enum args_command {
#define X(id, name, arguments, what, least, most) COMMAND_##id,
    ARGS_COMMAND_LIST(X)
#undef X
        COMMAND_COUNT,
    COMMAND_NONE = COMMAND_COUNT
} args_command;

enum { /* sets of commands */
#define X(id, name, arguments, what, least, most) ON_##id = 1u << COMMAND_##id,
       ARGS_COMMAND_LIST(X)
#undef X
           ON_ALL = (1u << COMMAND_COUNT) - 1,
       ON_WORK = ON_ALL & ~ON_HELP,
       /* a model on a device */
       ON_ENGINE = ON_RUN | ON_BENCH | ON_LOGITS | ON_EMBED_MEDIA | ON_PERPLEXITY | ON_SELFTEST |
                   ON_EXPLAIN | ON_TRACE | ON_TUNE | ON_TRAIN,
       ON_DEVICE = ON_ENGINE | ON_BENCH_OPS | ON_EVAL,
       ON_MODEL = ON_ENGINE | ON_SHOW | ON_TOKENIZE | ON_RENDER | ON_MERGE,
       ON_MEDIA = ON_RUN | ON_LOGITS | ON_EMBED_MEDIA,
       ON_TOWERS = ON_MEDIA | ON_SHOW | ON_BENCH | ON_TRAIN | ON_EXPLAIN | ON_TRACE,
       ON_ANSWERS = ON_RUN | ON_LOGITS | ON_PERPLEXITY, /* what the device computes counts */
};

typedef enum args_kind {
    ARGS_SWITCH, /* no value; how often it was given is counted */
    ARGS_TEXT,
    ARGS_FILE,   /* text that shells complete with file names */
    ARGS_TEXTS,  /* may be given up to ARGS_TEXTS_MAX times */
    ARGS_FILES,  /* the same of files */
    ARGS_MEDIA,  /* a file; may be given up to ARGS_MEDIA_MAX times, in one order with its like */
    ARGS_COUNT,  /* a whole number from 0 to 2^32 - 1 */
    ARGS_SEED,   /* a whole number from 0 to 2^64 - 1 */
    ARGS_SIZE,   /* bytes, with K, M, G or T as powers of 1,024 */
    ARGS_NUMBER, /* a decimal number */
    ARGS_LIST,   /* whole numbers, comma-separated */
    ARGS_CHOICE, /* one of the words of the value's name, "exact|fast" */
} args_kind;

/* id, name, letter or 0, kind, name of the value, commands, what it does */
#define ARGS_FLAG_LIST(X)                                                                          \
    X(HELP, "help", 'h', SWITCH, "", ON_ALL, "Print this text and stop")                           \
    X(VERSION, "version", 'V', SWITCH, "", ON_HELP, "Print the version and stop")                  \
    X(MODEL, "model", 'm', TEXT, "MODEL", ON_MODEL,                                                \
      "The model: a file, a name in Beryl's folder, or an Ollama name; default the built-in one")  \
    X(DEVICE, "device", 0, TEXT, "D", ON_DEVICE,                                                   \
      "Where to run: gpu, cpu, a backend, [backend:](index or part of a name), software, "         \
      "reference; default $BERYL_DEVICE, else the best")                                           \
    X(PRECISION, "precision", 0, CHOICE, "exact|fast", ON_DEVICE,                                  \
      "exact: 32-bit activations; fast: 8-bit ones where the device multiplies them; default "     \
      "fast")                                                                                      \
    X(KV, "kv", 0, CHOICE, "f32|f16|q8", ON_ENGINE,                                                \
      "How keys and values are kept; default f32 under exact, else f16")                           \
    X(CONTEXT, "context", 'c', COUNT, "N", ON_ENGINE,                                              \
      "Tokens that a conversation can hold; default 8,192, up to 32,768 where there is memory, "   \
      "or what the model has")                                                                     \
    X(MEMORY, "memory", 0, SIZE, "SIZE", ON_ENGINE | ON_EVAL,                                      \
      "Device memory that may be used, like 6G; default what the device has")                      \
    X(NO_CACHE, "no-cache", 0, SWITCH, "", ON_DEVICE, "Neither read nor write the cache folder")   \
    X(JSON, "json", 0, SWITCH, "", ON_WORK, "Print JSON for other programs")                       \
    X(VERBOSE, "verbose", 'v', SWITCH, "", ON_WORK & ~(ON_LIST | ON_OPS),                          \
      "Tell more, with speed figures; twice: everything")                                          \
    X(LORA, "lora", 0, FILES, "PATH[:SCALE]",                                                      \
      ON_RUN | ON_BENCH | ON_LOGITS | ON_PERPLEXITY | ON_EXPLAIN | ON_TRACE | ON_MERGE,            \
      "A low-rank adapter (a folder of PEFT's, GGUF, safetensors), its scale 1 by default; may "   \
      "be "                                                                                        \
      "repeated")                                                                                  \
    X(PIECE, "piece", 0, COUNT, "N",                                                               \
      ON_RUN | ON_BENCH | ON_LOGITS | ON_SELFTEST | ON_EXPLAIN | ON_TRACE,                         \
      "Most tokens of a prompt in one step; default as the device likes")                          \
    X(SYSTEM, "system", 's', TEXT, "TEXT", ON_RUN, "The system prompt")                            \
    X(FILE, "file", 'f', FILE, "FILE", ON_RUN,                                                     \
      "Append the text of a file to the prompt; - is standard input")                              \
    X(CHAT, "chat", 0, FILE, "FILE", ON_RUN,                                                       \
      "Answer or go on with a conversation from a JSON file")                                      \
    X(TOOLS, "tools", 0, FILE, "FILE", ON_RUN, "A JSON array of tools that the model may call")    \
    X(THINK, "think", 0, SWITCH, "", ON_RUN, "Let the model think before it answers")              \
    X(DROP, "drop-oldest", 0, SWITCH, "", ON_RUN,                                                  \
      "When the context is full, go on without the oldest turns; in a chat also /drop on")         \
    X(RAW, "raw", 0, SWITCH, "", ON_RUN, "Continue the prompt as plain text, without chat form")   \
    X(IDS, "ids", 0, LIST, "IDS", ON_RUN | ON_LOGITS, "The prompt as token ids, like 2,10,11")     \
    X(IMAGE, "image", 0, MEDIA, "FILE", ON_MEDIA,                                                  \
      "A picture (PNG, JPEG, WebP, GIF, BMP; - is standard input) before the prompt, or in the "   \
      "place of its soft-token ids; repeatable")                                                   \
    X(AUDIO, "audio", 0, MEDIA, "FILE", ON_MEDIA,                                                  \
      "Sound (WAV, FLAC, MP3, Ogg), likewise; what is longer than 30 s is cut into clips")         \
    X(VIDEO, "video", 0, MEDIA, "FILE", ON_RUN | ON_LOGITS,                                        \
      "A video, likewise: a picture a second, 32 at most, by ffmpeg, without its sound")           \
    X(MMPROJ, "mmproj", 0, FILE, "FILE", ON_TOWERS,                                                \
      "The file with the towers for pictures and sound; default the model's own, or one beside "   \
      "it")                                                                                        \
    X(BUDGET, "image-budget", 0, COUNT, "N", ON_MEDIA,                                             \
      "Most soft tokens of a picture: 70, 140, 280, 560, 1120; default as the file says, else "    \
      "280")                                                                                       \
    X(RESIZED, "resized", 0, SWITCH, "", ON_MEDIA, "Take pictures at the size they have")          \
    X(PRINT_IDS, "print-ids", 0, SWITCH, "", ON_RUN, "Print the new token ids instead of text")    \
    X(MAX_TOKENS, "max-tokens", 'n', COUNT, "N", ON_RUN,                                           \
      "Most tokens of an answer; default until it ends or the context is full")                    \
    X(GREEDY, "greedy", 0, SWITCH, "", ON_RUN, "Always take the likeliest token")                  \
    X(TEMPERATURE, "temperature", 't', NUMBER, "X", ON_RUN,                                        \
      "How freely to choose; 0 is greedy; default as the file says, else 1")                       \
    X(TOP_K, "top-k", 0, COUNT, "N", ON_RUN,                                                       \
      "Choose among the N likeliest; 0 is off; default as the file says, else 64")                 \
    X(TOP_P, "top-p", 0, NUMBER, "X", ON_RUN,                                                      \
      "Choose among the likeliest that make up X; 1 is off; default as the file says, else 0.95")  \
    X(MIN_P, "min-p", 0, NUMBER, "X", ON_RUN,                                                      \
      "Drop tokens less likely than X times the likeliest; default off")                           \
    X(REPETITION, "repetition-penalty", 0, NUMBER, "X", ON_RUN,                                    \
      "Divide the logits of recent tokens by X; default off")                                      \
    X(PRESENCE, "presence-penalty", 0, NUMBER, "X", ON_RUN,                                        \
      "Take X from the logits of recent tokens; default off")                                      \
    X(FREQUENCY, "frequency-penalty", 0, NUMBER, "X", ON_RUN,                                      \
      "Take X from the logits of recent tokens, each time they occur; default off")                \
    X(WINDOW, "penalty-window", 0, COUNT, "N", ON_RUN, "How many tokens are recent; default 64")   \
    X(SEED, "seed", 0, SEED, "N", ON_RUN, "Seed of the draw; default 0, from the clock")           \
    X(STOP, "stop", 0, TEXTS, "TEXT", ON_RUN, "End the answer before this text; may be repeated")  \
    X(IGNORE_EOS, "ignore-eos", 0, SWITCH, "", ON_RUN, "Go on past the end of a turn")             \
    X(METADATA, "metadata", 0, SWITCH, "", ON_SHOW, "Every key of the file with its value")        \
    X(TENSORS, "tensors", 0, SWITCH, "", ON_SHOW, "Every tensor with its type and shape")          \
    X(TEXT, "text", 0, TEXT, "TEXT", ON_TOKENIZE, "The text; default standard input")              \
    X(TEXT_FILE, "file", 'f', FILE, "FILE", ON_TOKENIZE, "Take the text from a file")              \
    X(SPECIAL, "special", 0, SWITCH, "", ON_TOKENIZE,                                              \
      "Literals of control tokens in the text become control tokens, and are shown by --decode")   \
    X(DECODE, "decode", 0, LIST, "IDS", ON_TOKENIZE, "Print the text of these ids instead")        \
    X(RENDER_CHAT, "chat", 0, FILE, "FILE", ON_RENDER,                                             \
      "The conversation as JSON: messages, tools, think, generate; default standard input")        \
    X(RENDER_IDS, "ids", 0, SWITCH, "", ON_RENDER, "Print the prompt's token ids instead")         \
    X(OUT, "out", 0, FILE, "FILE", ON_LOGITS | ON_EMBED_MEDIA,                                     \
      "The NumPy file; - is standard output")                                                      \
    X(TRAIN_VALID, "valid", 0, FILE, "FILE", ON_TRAIN,                                             \
      "Data that is not learned from, whose loss is told at the end")                              \
    X(TRAIN_VALID_EVERY, "valid-every", 0, COUNT, "N", ON_TRAIN,                                   \
      "Measure it every N steps too, and keep the best adapter in DIR/best; default 0, never")     \
    X(TRAIN_PATIENCE, "patience", 0, COUNT, "N", ON_TRAIN,                                         \
      "Stop once N such losses in a row were no better; default 0, never")                         \
    X(TRAIN_OUT, "out", 0, FILE, "DIR", ON_TRAIN, "The folder of adapter and checkpoint")          \
    X(TRAIN_FORMAT, "format", 0, CHOICE, "peft|gguf|rullama", ON_TRAIN,                            \
      "Of the adapter: as PEFT has it (default), DIR/adapter.gguf or DIR/adapter.safetensors")     \
    X(TRAIN_SAVE_EVERY, "save-every", 0, COUNT, "N", ON_TRAIN,                                     \
      "Write adapter and checkpoint every N steps too; default 0, at the end alone")               \
    X(TRAIN_RESUME, "resume", 0, SWITCH, "", ON_TRAIN,                                             \
      "Go on from the checkpoint in DIR; the other flags are as they were")                        \
    X(TRAIN_INIT, "init", 0, FILE, "ADAPTER", ON_TRAIN,                                            \
      "Go on from this adapter; default a new one")                                                \
    X(TRAIN_RANK, "rank", 0, COUNT, "N", ON_TRAIN, "Rank of a new adapter; default 16")            \
    X(TRAIN_ALPHA, "alpha", 0, NUMBER, "X", ON_TRAIN, "Its alpha; default twice the rank")         \
    X(TRAIN_TARGETS, "targets", 0, TEXT, "NAMES", ON_TRAIN,                                        \
      "What it changes; default q,k,v,o,gate,up,down; also embed_tokens, lm_head")                 \
    X(TRAIN_LAYERS, "layers", 0, TEXT, "A-B,C", ON_TRAIN, "In which layers, from 0; default all")  \
    X(TRAIN_DROPOUT, "dropout", 0, NUMBER, "X", ON_TRAIN,                                          \
      "The chance that a number is dropped before A; default 0")                                   \
    X(TRAIN_EPOCHS, "epochs", 0, COUNT, "N", ON_TRAIN, "How often each row is seen; default 1")    \
    X(TRAIN_BATCH, "batch", 0, COUNT, "N", ON_TRAIN, "Rows of a pass; default 1")                  \
    X(TRAIN_ACCUMULATE, "accumulate", 0, COUNT, "N", ON_TRAIN, "Passes of a step; default 1")      \
    X(TRAIN_RATE, "lr", 0, NUMBER, "X", ON_TRAIN, "The highest learning rate; default 2e-4")       \
    X(TRAIN_WARMUP, "warmup", 0, COUNT, "N", ON_TRAIN, "Steps in which the rate rises; default 0") \
    X(TRAIN_SCHEDULE, "schedule", 0, CHOICE, "cosine|constant|linear|restarts", ON_TRAIN,          \
      "How the rate goes on; default cosine")                                                      \
    X(TRAIN_BETAS, "betas", 0, TEXT, "B1,B2", ON_TRAIN, "Of AdamW; default 0.9,0.999")             \
    X(TRAIN_EPS, "eps", 0, NUMBER, "X", ON_TRAIN, "Of AdamW; default 1e-8")                        \
    X(TRAIN_DECAY, "weight-decay", 0, NUMBER, "X", ON_TRAIN, "Of AdamW; default 0")                \
    X(TRAIN_CLIP, "clip", 0, NUMBER, "X", ON_TRAIN, "The largest norm of the gradient; default 1") \
    X(TRAIN_MOMENTS, "moments", 0, CHOICE, "f32|q8", ON_TRAIN,                                     \
      "Of AdamW: numbers of 32 bits (default), or of 8")                                           \
    X(TRAIN_SEED, "seed", 0, COUNT, "N", ON_TRAIN,                                                 \
      "Of a new adapter and of the order of rows; default 0")                                      \
    X(TRAIN_ORDER, "order", 0, FILE, "FILE", ON_TRAIN,                                             \
      "JSON: for each epoch the numbers of the rows in order; default shuffled")                   \
    X(TRAIN_RECOMPUTE, "recompute", 0, TEXT, "auto|always|never|N", ON_TRAIN,                      \
      "Layers, or the first N, again in the backward pass, which takes time, not memory; "         \
      "default as many as needed")                                                                 \
    X(TRAIN_LOG, "log", 0, FILE, "FILE", ON_TRAIN, "A line of JSON for each step")                 \
    X(TRAIN_TRACE, "trace", 0, FILE, "FILE", ON_TRAIN,                                             \
      "Time the dispatches of steps, and write them as trace events; steps take longer")           \
    X(TRAIN_GRADIENTS, "gradients", 0, FILE, "FILE", ON_TRAIN,                                     \
      "Gradients of the first step before clipping, a safetensors file of PEFT's names")           \
    X(TRAIN_SAMPLE, "sample", 0, TEXT, "PROMPT", ON_TRAIN,                                         \
      "Answer this before and after; default on a terminal what the first row asks")               \
    X(TRAIN_DRY_RUN, "dry-run", 0, SWITCH, "", ON_TRAIN, "Tell rows, tokens and memory, and stop") \
    X(MERGE_OUT, "out", 0, FILE, "FILE", ON_MERGE, "The GGUF file that is written")                \
    X(TO, "to", 0, CHOICE, "peft|gguf|rullama", ON_ADAPTER,                                        \
      "The form: a folder as PEFT has it, a GGUF file, or rullama's safetensors")                  \
    X(VALUES, "type", 0, CHOICE, "f32|f16|bf16", ON_ADAPTER | ON_MERGE,                            \
      "Of the values, or of what is folded into; default as it is")                                \
    X(LOGITS_TEXT, "text", 0, TEXT, "TEXT", ON_LOGITS, "A text (after BOS) instead of ids")        \
    X(SCORE_PIECE, "piece", 0, COUNT, "N", ON_PERPLEXITY,                                          \
      "Tokens of a piece of text; the second half of each is scored; default 512")                 \
    X(PIECES, "pieces", 0, COUNT, "N", ON_PERPLEXITY, "Most pieces to score; default all")         \
    X(N_PROMPT, "n-prompt", 'p', LIST, "N", ON_BENCH, "Read prompts of N tokens; default 512")     \
    X(N_GEN, "n-gen", 'n', LIST, "N", ON_BENCH, "Generate N tokens; default 128")                  \
    X(N_DEPTH, "n-depth", 'd', LIST, "N", ON_BENCH, "After N tokens of context; default 0")        \
    X(BATCH, "batch", 'b', LIST, "N", ON_BENCH, "Generate in N sessions at once; default 1")       \
    X(PICTURES, "pictures", 0, LIST, "N", ON_BENCH, "Encode pictures of N soft tokens")            \
    X(SOUNDS, "sounds", 0, LIST, "N", ON_BENCH, "Encode clips of N seconds, up to 30")             \
    X(REPEAT, "repetitions", 'r', COUNT, "N", ON_BENCH, "Repeat each test N times; default 5")     \
    X(OUTPUT, "output", 'o', CHOICE, "md|csv|json|jsonl", ON_BENCH,                                \
      "Form of the rows; default md")                                                              \
    X(NO_WARMUP, "no-warmup", 0, SWITCH, "", ON_BENCH, "Measure the first run too")                \
    X(STAGE, "stage", 0, CHOICE, "graph|plan|ir|code", ON_EXPLAIN,                                 \
      "graph: operations; plan: dispatches; ir: kernels before and after the passes; code: what "  \
      "the device's compiler gets; default graph, of a kernel ir")                                 \
    X(PLAN, "plan", 0, CHOICE, "decode|prefill|output|logits|batch|picture|sound",                 \
      ON_EXPLAIN | ON_TRACE,                                                                       \
      "Which plan: one token, a piece of a prompt, its last piece, all logits, one token of each " \
      "session, a picture, 30 s of sound; default decode")                                         \
    X(OP, "op", 0, COUNT, "N", ON_EXPLAIN, "Only node N (graph) or dispatch N")                    \
    X(TRACE_OUT, "out", 0, FILE, "FILE", ON_TRACE,                                                 \
      "Where the trace goes; default trace.json; - is standard output")                            \
    X(EXTENT, "extent", 0, TEXTS, "NAME=N", ON_BENCH | ON_EXPLAIN,                                 \
      "Of an ONNX file: the size of a dimension that it leaves open")                              \
    X(EVAL_INPUT, "input", 'i', FILES, "NAME=FILE.npy", ON_EVAL,                                   \
      "The numbers of an input, a NumPy file or an archive that has NAME.npy; each input has one") \
    X(EVAL_OUT, "output", 'o', FILE, "FILE.npz", ON_EVAL,                                          \
      "Where all outputs go, as an archive of NumPy files; default their shapes are told")         \
    X(DEPTH, "depth", 0, COUNT, "N", ON_TRACE, "After N tokens of context; default 0")             \
    X(STEPS, "steps", 0, COUNT, "N", ON_TRACE, "Record N runs of the plan; default 3")             \
    X(TRIES, "tries", 0, COUNT, "N", ON_TUNE,                                                      \
      "Forms tried of each kind of product at most; default 24")                                   \
    X(AGAIN, "again", 0, SWITCH, "", ON_TUNE, "Search anew what was found before")                 \
    X(TRACE_SESSIONS, "sessions", 0, COUNT, "N", ON_EXPLAIN | ON_TRACE,                            \
      "Sessions that --plan batch is for; default 16")                                             \
    X(TUNE_SESSIONS, "batch", 'b', COUNT, "N", ON_TUNE,                                            \
      "Also for N sessions that generate at once; default 1")                                      \
    X(TUNE_LIST, "list", 0, SWITCH, "", ON_TUNE, "List what is kept, for which devices")           \
    X(FORGET, "forget", 0, SWITCH, "", ON_TUNE, "Delete what is kept, for all devices")            \
    X(TYPE, "type", 0, TEXT, "T", ON_BENCH_OPS,                                                    \
      "Type of the weight, table or cache, like Q4_K; default the usual ones")                     \
    X(SHAPE, "shape", 0, LIST, "M,N,K", ON_BENCH_OPS,                                              \
      "Sizes, as the column of shapes names them; default the usual ones")                         \
    X(OPS_OUTPUT, "output", 'o', CHOICE, "md|csv|json", ON_BENCH_OPS,                              \
      "Form of the rows; default md")                                                              \
    X(OPS_MARKDOWN, "markdown", 0, SWITCH, "", ON_OPS, "Print a Markdown table")                   \
    X(MAN, "man", 0, SWITCH, "", ON_HELP, "Print the man page")                                    \
    X(MARKDOWN, "markdown", 0, SWITCH, "", ON_HELP, "Print all commands as Markdown")              \
    X(COMPLETION, "completion", 0, CHOICE, "bash|zsh|fish", ON_HELP, "Print a completion script")

typedef enum args_flag {
#define X(id, name, letter, kind, value, commands, what) FLAG_##id,
    ARGS_FLAG_LIST(X)
#undef X
        FLAG_COUNT
} args_flag;

typedef struct args_command_info {
    const char *name, *arguments, *what;
    size_t least, most;
} args_command_info;

typedef struct args_flag_info {
    const char *name;
    char letter;
    args_kind kind;
    const char *value;
    unsigned commands;
    const char *what;
} args_flag_info;

extern const args_command_info args_commands[COMMAND_COUNT];
extern const args_flag_info args_flags[FLAG_COUNT];

enum { ARGS_TEXTS_MAX = 16, ARGS_MEDIA_MAX = 32, ARGS_LIST_MAX = 1 << 20 };

typedef struct args_value {
    uint32_t count;   /* how often it was given */
    const char *text; /* as given, borrowed from argv */
    uint64_t integer; /* COUNT, SEED, SIZE; CHOICE: index of the word */
    double number;    /* NUMBER */
} args_value;

typedef struct args {
    args_command command;
    bool version;
    args_value values[FLAG_COUNT];
    base_vec(uint32_t) list[FLAG_COUNT]; /* of LIST flags */
    const char *texts[ARGS_TEXTS_MAX];   /* of the one TEXTS flag */
    size_t n_texts;
    const char *files[ARGS_TEXTS_MAX]; /* of the one FILES flag */
    size_t n_files;
    struct {
        args_flag flag;
        const char *path;
    } media[ARGS_MEDIA_MAX]; /* of MEDIA flags, as they were given */
    size_t n_media;
    const char *positional[ARGS_POSITIONAL_MAX];
    size_t n_positional;
} args;

/* False: `message` (one line) says what is wrong and what would be right. argv must outlive args.
 */
bool args_parse(args *a, base_heap *heap, int argc, char **argv, char *message, size_t size);
void args_fini(args *a, base_heap *heap);

bool args_has(const args *a, args_flag flag);
const char *args_text(const args *a, args_flag flag); /* NULL: not given */
uint32_t args_count(const args *a, args_flag flag, uint32_t otherwise);
float args_number(const args *a, args_flag flag, float otherwise);
/* Whole numbers, comma-separated, none above `most`; appends to *list. */
bool args_list_parse(const char *text, uint64_t most, base_heap *heap, uint32_t **data,
                     size_t *count, size_t *capacity);
/* "6G" in bytes. */
bool args_size_parse(const char *text, uint64_t *bytes);
args_command args_command_find(const char *name); /* COMMAND_NONE: no such command */
/* One line about a name that no command has. */
void args_command_unknown(const char *name, char *message, size_t size);
/* The one of n names that is most like `given`; NULL: none is like it. */
const char *args_nearest(const char *given, size_t size, const char *const *names, size_t n);

#endif
