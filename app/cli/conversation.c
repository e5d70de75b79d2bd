/* conversation.c - the messages of a chat as JSON, so that what was loaded from a file is kept as
 * it was, and chat files: {"messages", "tools", "think"}, which `render --chat` and `run --chat`
 * read too. */
#include "chat.h"

#include "base/json.h"

#include <string.h>

void conversation_init(conversation *v, base_heap *heap) {
    *v = (conversation){.heap = heap};
    base_text_init(&v->system, heap);
    base_text_init(&v->tools, heap);
}

void conversation_cut(conversation *v, size_t n_message) {
    while (v->messages.count > n_message) base_text_fini(&v->messages.data[--v->messages.count]);
}

void conversation_fini(conversation *v) {
    conversation_cut(v, 0);
    base_vec_fini(v->heap, &v->messages);
    base_text_fini(&v->system);
    base_text_fini(&v->tools);
}

bool conversation_add_json(conversation *v, const char *json, size_t size) {
    base_text *text = base_vec_add(v->heap, &v->messages);
    if (!text) return false;
    base_text_init(text, v->heap);
    base_text_add(text, json, size);
    if (!text->failed) return true;
    conversation_cut(v, v->messages.count - 1);
    return false;
}

bool conversation_add(conversation *v, const char *role, const char *content, size_t size) {
    json_out j;
    json_init(&j, v->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "role", role);
    json_bytes(&j, "content", content, size);
    json_close(&j, '}');
    bool ok = !j.text.failed && conversation_add_json(v, j.text.data, j.text.size);
    json_fini(&j);
    return ok;
}

const char *conversation_call_id(char *to, size_t message, size_t call) {
    snprintf(to, CALL_ID_SIZE, "call-%zu-%zu", message, call);
    return to;
}

void conversation_write(const conversation *v, json_out *j, const char *model) {
    json_open(j, NULL, '{');
    if (model) json_text(j, "model", model);
    json_open(j, "messages", '[');
    if (v->system.size) {
        json_open(j, NULL, '{');
        json_text(j, "role", "system");
        json_bytes(j, "content", v->system.data, v->system.size);
        json_close(j, '}');
    }
    for (size_t i = 0; i < v->messages.count; i++)
        json_raw(j, NULL, v->messages.data[i].data, v->messages.data[i].size);
    json_close(j, ']');
    if (v->tools.size) json_raw(j, "tools", v->tools.data, v->tools.size);
    json_bool(j, "think", v->think);
    json_bool(j, "generate", true);
    json_close(j, '}');
}

static bool is_system(const base_json *message) {
    const base_json *role = base_json_find(message, "role"),
                    *content = base_json_find(message, "content");
    return role && role->kind == JSON_STRING && content && content->kind == JSON_STRING &&
           (base_view_equal(role->text, BASE_VIEW("system")) ||
            base_view_equal(role->text, BASE_VIEW("developer")));
}

static bool read_root(conversation *v, const base_json *root) {
    const base_json *messages = base_json_find(root, "messages"),
                    *tools = base_json_find(root, "tools");
    const base_json *think = base_json_find(root, "think");
    const base_json *message = messages->child;
    if (message && is_system(message)) {
        base_text_add_view(&v->system, base_json_find(message, "content")->text);
        message = message->next;
    }
    for (; message; message = message->next) {
        base_text text;
        base_text_init(&text, v->heap);
        base_json_write(&text, message);
        bool ok = !text.failed && conversation_add_json(v, text.data, text.size);
        base_text_fini(&text);
        if (!ok) return false;
    }
    if (tools && tools->kind == JSON_ARRAY && tools->n_child) base_json_write(&v->tools, tools);
    v->think = think && think->kind == JSON_TRUE;
    return !v->tools.failed && !v->system.failed;
}

/* A parsed file; NULL: reported. The arena owns it. */
static const base_json *file_parse(cli *c, base_arena *arena, const char *path) {
    size_t size = 0;
    base_json *root = NULL;
    beryl_error error = {0};
    char *data = cli_read(c, path, &size);
    if (!data) return NULL;
    beryl_status status = base_json_parse(arena, data, size, &root, &error);
    base_heap_give(&c->heap, data, size + 1);
    if (!status) return root;
    cli_fail(c, "%s, byte %llu: %s", path, (unsigned long long)error.at,
             *error.message ? error.message : beryl_status_text(status));
    return NULL;
}

bool conversation_read(cli *c, conversation *v, const char *path) {
    base_arena arena;
    conversation fresh;
    bool ok = false;
    base_arena_init(&arena, &c->heap);
    conversation_init(&fresh, v->heap);
    const base_json *root = file_parse(c, &arena, path);
    const base_json *messages = root ? base_json_find(root, "messages") : NULL;
    if (root && (!messages || messages->kind != JSON_ARRAY)) {
        cli_fail(c, "%s is no conversation: it has no \"messages\" array", path);
    } else if (root) {
        ok = read_root(&fresh, root);
        if (!ok) cli_no_memory(c);
    }
    if (ok) {
        conversation_fini(v);
        *v = fresh;
    } else {
        conversation_fini(&fresh);
    }
    base_arena_fini(&arena);
    return ok;
}

bool conversation_read_tools(cli *c, conversation *v, const char *path) {
    base_arena arena;
    bool ok = false;
    base_arena_init(&arena, &c->heap);
    const base_json *root = file_parse(c, &arena, path);
    if (root && root->kind != JSON_ARRAY) {
        cli_fail(c, "%s is no JSON array of tools", path);
    } else if (root) {
        base_text_clear(&v->tools);
        base_json_write(&v->tools, root);
        ok = !v->tools.failed;
        if (!ok) cli_no_memory(c);
    }
    base_arena_fini(&arena);
    return ok;
}

bool conversation_waits(const conversation *v) {
    if (!v->messages.count) return false;
    const base_text *last = &v->messages.data[v->messages.count - 1];
    base_arena arena;
    base_json *root = NULL;
    base_arena_init(&arena, v->heap);
    bool waits = false;
    if (!base_json_parse(&arena, last->data, last->size, &root, NULL)) {
        const base_json *role = base_json_find(root, "role");
        waits = role && role->kind == JSON_STRING &&
                !base_view_equal(role->text, BASE_VIEW("assistant")) &&
                !base_view_equal(role->text, BASE_VIEW("model"));
    }
    base_arena_fini(&arena);
    return waits;
}
