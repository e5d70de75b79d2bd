/* chat.h - the conversation on the terminal and the answers of one turn, shared by run.c and
 * chat.c. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "cli.h"

/* id, name, arguments, what it does */
#define CHAT_COMMAND_LIST(X)                                                                    \
    X(HELP, "/help", "", "Tell the commands")                                                   \
    X(CLEAR, "/clear", "", "Forget the conversation, keep the system prompt")                   \
    X(SYSTEM, "/system", "[TEXT]",                                                              \
      "Set the system prompt; without a text: show it; - takes it away")                        \
    X(SAVE, "/save", "FILE", "Save the conversation (JSON), and the session's state beside it") \
    X(LOAD, "/load", "FILE", "Go on with a saved conversation")                                 \
    X(STATS, "/stats", "", "Speed of the last answer, memory, context in use")                  \
    X(IMAGE, "/image", "FILE", "Show a picture with the next message; a path alone does too")   \
    X(AUDIO, "/audio", "FILE", "Let the model hear a sound file with the next message")         \
    X(VIDEO, "/video", "FILE", "Show a video with the next message (needs ffmpeg)")             \
    X(THINK, "/think", "on|off", "Let the model think before it answers")                       \
    X(DROP, "/drop", "on|off", "When the context is full, go on without the oldest turns")      \
    X(SET, "/set", "[NAME VALUE]", "Show or change sampling, like /set temperature 0.7")        \
    X(LORA, "/lora", "[PATH[:SCALE]|off]", "Add a low-rank adapter, or take all away")          \
    X(RESULT, "/result", "TEXT", "Answer the model's tool call")                                \
    X(AGAIN, "/again", "", "Answer the last message anew")                                      \
    X(BYE, "/bye", "", "Leave (or Ctrl-D)")

typedef enum chat_command {
#define X(id, name, arguments, what) CHAT_##id,
    CHAT_COMMAND_LIST(X)
#undef X
        CHAT_COUNT
} chat_command;

typedef struct chat_command_info {
    const char *name, *arguments, *what;
} chat_command_info;

extern const chat_command_info chat_commands[CHAT_COUNT];

/* ---- conversation: messages as JSON, so that what was loaded is kept as it was */
typedef struct conversation {
    base_heap *heap;
    base_vec(base_text) messages; /* one JSON object each */
    base_text system;             /* empty: none */
    base_text tools;              /* a JSON array, or empty */
    bool think, preserve_thinking;
    size_t n_dropped; /* oldest messages that prompts leave out */
} conversation;

void conversation_init(conversation *v, base_heap *heap);
void conversation_fini(conversation *v);
/* Adds {"role", "content"}; false: no memory. */
bool conversation_add(conversation *v, const char *role, const char *content, size_t size);
/* A message of the user with parts (JSON objects, commas between) before its text. */
bool conversation_add_parts(conversation *v, const base_text *parts, const char *content,
                            size_t size);
bool conversation_add_json(conversation *v, const char *json, size_t size);
struct base_json;
/* Calls `each` for the parts other than text of the messages that prompts have. False: no memory.
 */
bool conversation_media(const conversation *v,
                        void (*each)(void *user, const struct base_json *part), void *user);
void conversation_cut(conversation *v, size_t n_message); /* keeps the first n */
/* For a prompt, as beryl.h wants it, without what is dropped; with the model's name: the whole. */
void conversation_write(const conversation *v, json_out *j, const char *model);
/* Where the prompt would leave less than a quarter of the context (or than max_tokens, if that
 * is not 0 and less) for the answer: drops the oldest turns, each a question with all that came
 * of it, until half of the context is free, or the last one is alone. System messages stay. */
beryl_status conversation_fit(conversation *v, const beryl_engine *engine, uint32_t max_tokens,
                              beryl_error *error);
/* Reads what conversation_write wrote, or any conversation as beryl.h has it. False: reported,
 * and the conversation is as it was. engine: it must be one that can be answered, NULL: that is
 * seen later. */
bool conversation_read(cli *c, conversation *v, const beryl_engine *engine, const char *path);
bool conversation_waits(const conversation *v); /* the last message is not the assistant's */
bool conversation_read_tools(cli *c, conversation *v, const char *path);

enum { CALL_ID_SIZE = 48 };
const char *conversation_call_id(char *to, size_t message, size_t call);

/* ---- one answer */
typedef struct answer {
    cli *c;
    bool silent;               /* nothing is shown while it comes */
    base_text text, thought;   /* as generated */
    base_vec(base_text) calls; /* JSON objects {"name", "arguments"} */
    base_vec(int32_t) tokens;
    bool failed;          /* out of memory */
    beryl_part shown;     /* the part that was shown last */
    bool any, fresh_line; /* something was shown; it ended with a newline */
    term_filter filter;
    beryl_result result;
} answer;

void answer_init(answer *a, cli *c, bool silent);
void answer_fini(answer *a);
/* Runs a generate or chat task to its end, shows it, and closes it. BERYL_CANCELLED is not
 * reported, all else is. */
beryl_status answer_run(answer *a, beryl_task *task);
void answer_stats_print(const answer *a, FILE *to); /* two lines */
const char *answer_end_text(beryl_end end);
/* Adds the assistant's message; the i-th call's id is conversation_call_id of the message's index
 * and i. */
bool answer_keep(const answer *a, conversation *v);

/* Sampling as the flags say. */
void generate_options(const cli *c, beryl_generate_options *options);

/* The chat until /bye or Ctrl-D. Takes over the conversation's content. */
int chat_run(cli *c, beryl_engine *engine, conversation *v);

/* ---- line editing */
typedef struct line_editor line_editor;
line_editor *line_open(cli *c); /* NULL: reported */
void line_close(line_editor *e);
typedef enum line_end { LINE_TEXT, LINE_CLEARED, LINE_EOF } line_end;
/* A message: one line, lines joined by a trailing backslash, or a block between """. *text:
 * borrowed until the next call, without its last newline. LINE_CLEARED: Ctrl-C. */
line_end line_read(line_editor *e, const char **text, size_t *size);

#endif
