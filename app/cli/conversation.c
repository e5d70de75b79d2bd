/* conversation.c - the messages of a chat as JSON, so that what was loaded from a file is kept
 * as it was, and chat files, which `render --chat` and `run --chat` read too. Of a file's own
 * keys what is not known here is refused; those of messages are the library's to judge. */
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
    if (v->n_dropped > n_message) v->n_dropped = 0;
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

bool conversation_add_parts(conversation *v, const base_text *parts, const char *content,
                            size_t size) {
    json_out j;
    json_init(&j, v->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "role", "user");
    json_open(&j, "content", '[');
    json_raw(&j, NULL, parts->data, parts->size);
    json_open(&j, NULL, '{');
    json_text(&j, "type", "text");
    json_bytes(&j, "text", content, size);
    json_close(&j, '}');
    json_close(&j, ']');
    json_close(&j, '}');
    bool ok = !j.text.failed && conversation_add_json(v, j.text.data, j.text.size);
    json_fini(&j);
    return ok;
}

const char *conversation_call_id(char *to, size_t message, size_t call) {
    snprintf(to, CALL_ID_SIZE, "call-%zu-%zu", message, call);
    return to;
}

static bool has_role(const conversation *v, size_t message, const char *role) {
    const base_text *text = &v->messages.data[message];
    base_arena arena;
    base_json *root = NULL;
    base_arena_init(&arena, v->heap);
    bool has = false;
    if (!base_json_parse(&arena, text->data, text->size, &root, NULL)) {
        const base_json *found = base_json_find(root, "role");
        has =
            found && found->kind == JSON_STRING && base_view_equal(found->text, base_view_of(role));
    }
    base_arena_fini(&arena);
    return has;
}

/* A system message that is no plain text stands among the others. */
static bool begins_with_system(const conversation *v) {
    return v->messages.count && (has_role(v, 0, "system") || has_role(v, 0, "developer"));
}

bool conversation_media(const conversation *v, void (*each)(void *user, const base_json *part),
                        void *user) {
    bool good = true;
    for (size_t i = 0; good && i < v->messages.count; i++) {
        if (i < v->n_dropped && (i || !begins_with_system(v))) continue;
        const base_text *text = &v->messages.data[i];
        base_arena arena;
        base_json *root = NULL;
        base_arena_init(&arena, v->heap);
        good = base_json_parse(&arena, text->data, text->size, &root, NULL) != BERYL_NO_MEMORY;
        const base_json *content = root ? base_json_find(root, "content") : NULL;
        if (content && content->kind == JSON_ARRAY)
            for (const base_json *part = content->child; part; part = part->next) {
                const base_json *type =
                    part->kind == JSON_OBJECT ? base_json_find(part, "type") : NULL;
                if (type && type->kind == JSON_STRING &&
                    !base_view_equal(type->text, BASE_VIEW("text")))
                    each(user, part);
            }
        base_arena_fini(&arena);
    }
    return good;
}

void conversation_write(const conversation *v, json_out *j, const char *model) {
    const size_t first = model ? 0 : v->n_dropped;
    json_open(j, NULL, '{');
    if (model) json_text(j, "model", model);
    json_open(j, "messages", '[');
    if (v->system.size) {
        json_open(j, NULL, '{');
        json_text(j, "role", "system");
        json_bytes(j, "content", v->system.data, v->system.size);
        json_close(j, '}');
    }
    if (first && begins_with_system(v))
        json_raw(j, NULL, v->messages.data[0].data, v->messages.data[0].size);
    for (size_t i = first; i < v->messages.count; i++)
        json_raw(j, NULL, v->messages.data[i].data, v->messages.data[i].size);
    json_close(j, ']');
    if (v->tools.size) json_raw(j, "tools", v->tools.data, v->tools.size);
    json_bool(j, "think", v->think);
    if (v->preserve_thinking) json_bool(j, "preserve_thinking", true);
    json_bool(j, "generate", true);
    json_close(j, '}');
}

static void add_tokens(void *user, const base_json *part) {
    const base_json *tokens = base_json_find(part, "tokens");
    if (tokens && tokens->kind == JSON_NUMBER && tokens->number > 0 && tokens->number < 1e6)
        *(size_t *)user += (size_t)tokens->number;
}

/* Tokens of the prompt, with those that parts are told to be. */
static beryl_status prompt_count(const conversation *v, const beryl_engine *engine, size_t *n,
                                 beryl_error *error) {
    json_out j;
    int32_t *tokens = NULL;
    json_init(&j, v->heap);
    conversation_write(v, &j, NULL);
    beryl_status status = j.text.failed
                              ? BERYL_NO_MEMORY
                              : beryl_render_tokens(engine, j.text.data, &tokens, n, error);
    beryl_free(engine, tokens);
    json_fini(&j);
    if (!status && !conversation_media(v, add_tokens, n)) status = BERYL_NO_MEMORY;
    return status;
}

static bool is_one_of(base_view key, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (base_view_equal(key, base_view_of(words[i]))) return true;
    return false;
}

/* One of text alone. With keys that say more it stays among the messages as it is. */
static bool is_system(const base_json *message) {
    static const char *const keys[] = {"role", "content", "name", "id"};
    for (const base_json *p = message->child; p; p = p->next)
        if (!is_one_of(p->key, keys, sizeof keys / sizeof *keys)) return false;
    const base_json *role = base_json_find(message, "role"),
                    *content = base_json_find(message, "content");
    return role && role->kind == JSON_STRING && content && content->kind == JSON_STRING &&
           (base_view_equal(role->text, BASE_VIEW("system")) ||
            base_view_equal(role->text, BASE_VIEW("developer")));
}

static bool read_root(conversation *v, const base_json *root) {
    const base_json *messages = base_json_find(root, "messages"),
                    *tools = base_json_find(root, "tools");
    const base_json *think = base_json_find(root, "think"),
                    *preserve = base_json_find(root, "preserve_thinking");
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
    v->preserve_thinking = preserve && preserve->kind == JSON_TRUE;
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

/* False: reported. */
static bool root_check(cli *c, const base_json *root, const char *path) {
    static const char *const keys[] = {"messages",          "tools", "think", "generate",
                                       "preserve_thinking", "model"};
    const base_json *messages = base_json_find(root, "messages");
    if (!messages || messages->kind != JSON_ARRAY) {
        cli_fail(c, "%s is no conversation: it has no \"messages\" array", path);
        return false;
    }
    for (const base_json *p = root->child; p; p = p->next) {
        if (is_one_of(p->key, keys, sizeof keys / sizeof *keys)) continue;
        cli_fail(c,
                 "%s: an unknown key \"%.*s\"; known are messages, tools, think, generate, "
                 "preserve_thinking, model",
                 path, p->key.size > 60 ? 60 : (int)p->key.size, p->key.data);
        return false;
    }
    return true;
}

bool conversation_read(cli *c, conversation *v, const beryl_engine *engine, const char *path) {
    base_arena arena;
    beryl_error error = {0};
    conversation fresh;
    bool ok = false;
    base_arena_init(&arena, &c->heap);
    conversation_init(&fresh, v->heap);
    const base_json *root = file_parse(c, &arena, path);
    if (root && root_check(c, root, path)) {
        size_t n;
        ok = read_root(&fresh, root);
        if (!ok) cli_no_memory(c);
        if (ok && engine) ok = !cli_report(c, prompt_count(&fresh, engine, &n, &error), &error);
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
    const size_t n = v->messages.count;
    return n && !has_role(v, n - 1, "assistant") && !has_role(v, n - 1, "model");
}

/* ---- room in the context --------------------------------------------------------------------- */

/* Without the oldest turn that is left; false: it is the only one. */
static bool turn_drop(conversation *v) {
    size_t next = v->n_dropped + (!v->n_dropped && begins_with_system(v)) + 1;
    while (next < v->messages.count && !has_role(v, next, "user")) next++;
    if (next >= v->messages.count) return false;
    v->n_dropped = next;
    return true;
}

beryl_status conversation_fit(conversation *v, const beryl_engine *engine, uint32_t max_tokens,
                              beryl_error *error) {
    beryl_engine_info info = {0};
    size_t n = 0;
    beryl_status status = beryl_engine_info_get(engine, &info);
    if (!status) status = prompt_count(v, engine, &n, error);
    uint32_t room = info.context / 4;
    if (max_tokens && max_tokens < room) room = max_tokens;
    if (status || n + room <= info.context) return status;
    while (!status && n > info.context / 2 && turn_drop(v))
        status = prompt_count(v, engine, &n, error);
    return status;
}
