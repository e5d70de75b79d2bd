/* line.h - where lines of a chat come from: line_edit.c has libedit's editing, line_plain.c the
 * terminal's own. One of the two is built. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "chat.h"

typedef struct line_source line_source;
line_source *line_source_open(cli *c, FILE *to); /* to: where the prompt appears. NULL: reported */
void line_source_close(line_source *s);
/* One line without its newline, borrowed until the next call; more: a message goes on, which has
 * the other prompt. NULL: *end says why. */
const char *line_source_read(line_source *s, bool more, size_t *size, line_end *end);
void line_source_keep(line_source *s, const char *message); /* in the history, where one is kept */

#endif
