/* chat.c - one question, one answer, with beryl.h alone. Build it with
 *   cc chat.c $(pkg-config --cflags --libs beryl) -o chat
 *
 *   chat [QUESTION]        asks the built-in model; BERYL_MODEL names another */
#include "beryl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "chat: %s: %s\n", what, error->message);
    exit(1);
}

/* The question as a conversation in JSON: quotes and backslashes escaped, control characters as
 * blanks. */
static void conversation(char *json, size_t size, const char *question) {
    size_t n = (size_t)snprintf(json, size, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (; *question && n + 8 < size; question++) {
        if (*question == '"' || *question == '\\') json[n++] = '\\';
        json[n++] = (unsigned char)*question < ' ' ? ' ' : *question;
    }
    memcpy(json + n, "\"}]}", 5);
}

/* Steps a task to its end, shows the answer's text as it comes, and closes the task. */
static void finish(const char *what, beryl_task *task) {
    beryl_event event;
    beryl_status status;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT)
        if (event.kind == BERYL_EVENT_TOKEN && event.part == BERYL_PART_TEXT) {
            fwrite(event.text, 1, event.text_size, stdout);
            fflush(stdout);
        }
    if (status != BERYL_OK) fail(what, beryl_task_error(task));
    beryl_task_close(task);
}

int main(int argc, char **argv) {
    char chat[4096];
    conversation(chat, sizeof chat, argc > 1 ? argv[1] : "What is the capital of France?");
    beryl_engine *engine;
    beryl_session *session;
    beryl_task *task;
    beryl_error error;

    const beryl_engine_options options = {.size = sizeof options, .model = getenv("BERYL_MODEL")};
    if (beryl_engine_open(&options, &engine, &error)) fail("open", &error);
    if (beryl_engine_load(engine, &task, &error)) fail("load", &error);
    finish("load", task);

    const beryl_generate_options greedy = {
        .size = sizeof greedy, .greedy = true, .max_tokens = 200};
    if (beryl_session_open(engine, NULL, &session, &error)) fail("session", &error);
    if (beryl_session_chat(session, chat, &greedy, &task, &error)) fail("chat", &error);
    finish("answer", task);
    putchar('\n');
    beryl_session_close(session);
    beryl_engine_close(engine);
    return 0;
}
