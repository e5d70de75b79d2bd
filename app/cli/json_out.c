/* json_out.c - JSON for other programs: written into a text first, so that a command prints one
 * whole object or nothing. */
#include "cli.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

void json_init(json_out *j, base_heap *heap) {
    *j = (json_out){.comma = false};
    base_text_init(&j->text, heap);
}

void json_fini(json_out *j) {
    base_text_fini(&j->text);
}

static void member_begin(json_out *j, const char *key) {
    if (j->comma) base_text_add(&j->text, ",", 1);
    if (key) {
        base_json_write_string(&j->text, key, strlen(key));
        base_text_add(&j->text, ":", 1);
    }
    j->comma = true;
}

void json_open(json_out *j, const char *key, char bracket) {
    member_begin(j, key);
    base_text_add(&j->text, &bracket, 1);
    j->comma = false;
}

void json_close(json_out *j, char bracket) {
    base_text_add(&j->text, &bracket, 1);
    j->comma = true;
}

void json_bytes(json_out *j, const char *key, const char *data, size_t size) {
    member_begin(j, key);
    base_json_write_string(&j->text, data, size);
}

void json_text(json_out *j, const char *key, const char *value) {
    if (value) {
        json_bytes(j, key, value, strlen(value));
    } else {
        json_raw(j, key, "null", 4);
    }
}

void json_raw(json_out *j, const char *key, const char *json, size_t size) {
    member_begin(j, key);
    base_text_add(&j->text, json, size);
}

void json_integer(json_out *j, const char *key, int64_t value) {
    member_begin(j, key);
    base_text_print(&j->text, "%lld", (long long)value);
}

void json_number(json_out *j, const char *key, double value) {
    member_begin(j, key);
    if (isfinite(value)) {
        base_text_print(&j->text, "%.9g", value);
    } else {
        base_text_add(&j->text, "null", 4);
    }
}

void json_bool(json_out *j, const char *key, bool value) {
    json_raw(j, key, value ? "true" : "false", value ? 4 : 5);
}

void json_ids(json_out *j, const char *key, const int32_t *tokens, size_t n_token) {
    json_open(j, key, '[');
    for (size_t i = 0; i < n_token; i++) json_integer(j, NULL, tokens[i]);
    json_close(j, ']');
}

int json_print(cli *c, json_out *j, FILE *to) {
    if (j->text.failed) return cli_no_memory(c);
    fwrite(j->text.data, 1, j->text.size, to);
    putc('\n', to);
    base_text_clear(&j->text);
    j->comma = false;
    return CLI_OK;
}
