/* line_plain.c - lines as the terminal gives them, where libedit is not there: Backspace and Ctrl-U
 * edit, Ctrl-C clears the line, Ctrl-D on an empty one ends the chat. There is no history. */
#define _DEFAULT_SOURCE
#include "line.h"

#include <errno.h>

struct line_source {
    cli *c;
    FILE *to;
    base_text line;
};

line_source *line_source_open(cli *c, FILE *to) {
    line_source *s = base_heap_take(&c->heap, sizeof *s);
    if (!s) {
        cli_no_memory(c);
        return NULL;
    }
    *s = (line_source){.c = c, .to = to};
    base_text_init(&s->line, &c->heap);
    return s;
}

void line_source_close(line_source *s) {
    if (!s) return;
    base_text_fini(&s->line);
    base_heap_give(&s->c->heap, s, sizeof *s);
}

const char *line_source_read(line_source *s, bool more, size_t *size, line_end *end) {
    const term *t = &s->c->term;
    char byte = 0;
    bool interrupted = false;
    base_text_clear(&s->line);
    fflush(stdout);
    fprintf(s->to, "%s%s%s ", term_style_text(t, s->to, TERM_BOLD), more ? "..." : ">>>",
            term_style_text(t, s->to, TERM_PLAIN));
    fflush(s->to);
    while (byte != '\n' && !interrupted) {
        int n = cli_key_read(&byte);
        if (n == 1 && byte != '\n') base_text_add(&s->line, &byte, 1);
        else if (n == 0 || (n < 0 && errno != EINTR)) break;
        else if (n < 0) interrupted = cli_interrupted();
    }
    if (byte == '\n' && !interrupted) {
        base_text_add(&s->line, "", 0);
        *size = s->line.size;
        return s->line.data ? s->line.data : "";
    }
    putc('\n', s->to); /* the terminal has shown the ^C */
    *end = interrupted ? LINE_CLEARED : LINE_EOF;
    return NULL;
}

void line_source_keep(line_source *s, const char *message) {
    (void)s, (void)message;
}
