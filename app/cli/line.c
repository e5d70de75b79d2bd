/* line.c - messages of a chat out of lines: one line, lines joined by a trailing backslash, or a
 * block between """. */
#include "line.h"

#include <string.h>

struct line_editor {
    cli *c;
    line_source *source;
    base_text message; /* as read so far */
};

line_editor *line_open(cli *c) {
    line_editor *e = base_heap_take(&c->heap, sizeof *e);
    if (!e) {
        cli_no_memory(c);
        return NULL;
    }
    e->c = c;
    base_text_init(&e->message, &c->heap);
    e->source = line_source_open(c, c->term.out_tty ? stdout : stderr);
    if (e->source) return e;
    line_close(e);
    return NULL;
}

void line_close(line_editor *e) {
    if (!e) return;
    line_source_close(e->source);
    base_text_fini(&e->message);
    base_heap_give(&e->c->heap, e, sizeof *e);
}

static bool ends_block(const char *line, size_t size) {
    return size >= 3 && !memcmp(line + size - 3, "\"\"\"", 3);
}

line_end line_read(line_editor *e, const char **text, size_t *size) {
    base_text *message = &e->message;
    bool block = false;
    base_text_clear(message);
    for (bool more = false;; more = true) {
        size_t n = 0;
        line_end end = LINE_EOF;
        const char *line = line_source_read(e->source, more, &n, &end);
        if (!line) return more ? LINE_CLEARED : end;
        if (!more && n >= 3 && !memcmp(line, "\"\"\"", 3)) {
            block = true;
            line += 3;
            n -= 3;
            if (n == 0) continue;
        }
        if (more && message->size) base_text_add(message, "\n", 1);
        bool last = block ? ends_block(line, n) : !n || line[n - 1] != '\\';
        size_t mark = block ? 3 : 1; /* the closing quotes, or the backslash */
        base_text_add(message, line, block == last ? n - mark : n);
        if (last) break;
    }
    while (message->size && message->data[message->size - 1] == '\n')
        message->data[--message->size] = 0;
    base_text_add(message, "", 0);
    *text = message->data ? message->data : "";
    *size = message->size;
    if (message->size) line_source_keep(e->source, message->data);
    return LINE_TEXT;
}
