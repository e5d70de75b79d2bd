/* term.c - see term.h. Escape sequences are written here and in line.c alone. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "term.h"

#include "base/file.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void term_init(term *t) {
    *t = (term){.in_tty = isatty(0) == 1, .out_tty = isatty(1) == 1, .err_tty = isatty(2) == 1};
    const char *name = base_environment("TERM");
    bool dumb = !name || !strcmp(name, "dumb");
    bool colour = !dumb && !base_environment("NO_COLOR");
    t->colour_out = t->out_tty && colour;
    t->colour_err = t->err_tty && colour;
    t->moves = t->err_tty && !dumb;
}

unsigned term_width(void) {
    struct winsize size;
    return !ioctl(2, TIOCGWINSZ, &size) && size.ws_col > 0 ? size.ws_col : 80;
}

const char *term_style_text(const term *t, FILE *stream, term_style style) {
    if (!(stream == stderr ? t->colour_err : t->colour_out)) return "";
    switch (style) {
    case TERM_PLAIN: return "\033[0m";
    case TERM_DIM: return "\033[2m";
    case TERM_BOLD: return "\033[1m";
    case TERM_GREEN: return "\033[32m";
    case TERM_RED: return "\033[31m";
    case TERM_YELLOW: return "\033[33m";
    }
    return "";
}

void term_lift(term *t) {
    if (t->drawn) {
        fputs(t->column ? "\033[J" : "\r\033[K", stderr);
        fflush(stderr);
    }
    t->drawn = false;
    t->last = 0;
}

void term_clear(term *t) {
    term_lift(t);
    t->what = NULL;
}

void term_progress(term *t, const char *what, uint64_t done, uint64_t total, const char *note) {
    enum { WAIT_MS = 300, REDRAW_MS = 60, BAR_MAX = 30 };
    if (!t->moves) return;
    double now = base_time();
    if (!t->what || strcmp(t->what, what)) {
        /* A phase that follows a drawn one goes on in its place at once. */
        if (!t->drawn) t->since = now;
        snprintf(t->what_text, sizeof t->what_text, "%s", what);
        t->what = t->what_text;
        t->last = 0;
    }
    if (now - t->since < WAIT_MS * 1e-3 || now - t->last < REDRAW_MS * 1e-3) return;
    unsigned columns = term_width();
    if (t->column >= columns) return; /* a cursor at the edge cannot be brought back */
    t->last = now;
    t->drawn = true;
    char line[256];
    double part = total ? (double)done / (double)total : 0;
    if (part > 1) part = 1;
    int n = snprintf(line, sizeof line, "%s", what);
    unsigned used = (unsigned)n + (unsigned)(note ? strlen(note) + 2 : 0) + 10;
    unsigned bar = columns > used ? columns - used : 0;
    if (bar > BAR_MAX) bar = BAR_MAX;
    if (total) {
        if (bar > 4) {
            unsigned full = (unsigned)(part * bar);
            n += snprintf(line + n, sizeof line - (size_t)n, " [");
            for (unsigned i = 0; i < bar; i++) line[n++] = i < full ? '#' : '.';
            line[n++] = ']';
            line[n] = 0;
        }
        n += snprintf(line + n, sizeof line - (size_t)n, " %3.0f %%", part * 100);
    }
    if (note) snprintf(line + n, sizeof line - (size_t)n, "  %s", note);
    line[columns < sizeof line ? columns - 1 : sizeof line - 1] = 0;
    if (t->column) /* without colours, which would end those of the text */
        fprintf(stderr, "\n\r%s\033[K\033[A\033[%uG", line, t->column + 1);
    else
        fprintf(stderr, "\r%s%s%s\033[K", term_style_text(t, stderr, TERM_DIM), line,
                term_style_text(t, stderr, TERM_PLAIN));
    fflush(stderr);
}

/* How many bytes the character has that begins with `lead`; 0: none begins so. */
static unsigned lead_size(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Whether `byte` may come second after `lead`: no overlong forms, surrogates or points beyond
 * U+10FFFF. */
static bool second_fits(unsigned char lead, unsigned char byte) {
    unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return byte >= low && byte <= high;
}

static void word_end(term_filter *filter) {
    filter->n_word = filter->word_columns = 0;
}

/* A clean character onto a terminal of filter->width columns. A terminal that is full to the edge
 * keeps its cursor on the last column, so the way back is by absolute column. */
static void wrapped_put(term_filter *filter, const char *bytes, unsigned n, FILE *to) {
    wchar_t wide = L' ';
    mbstate_t state = {0};
    size_t got = mbrtowc(&wide, bytes, n, &state);
    int w = got == n ? wcwidth(wide) : 1;
    unsigned columns = w > 0 ? (unsigned)w : 0;
    bool full = filter->column + columns > filter->width;
    if (*bytes == '\n' || *bytes == '\t' || *bytes == ' ') {
        word_end(filter);
        if (*bytes == '\t') columns = 8 - filter->column % 8;
        filter->column = *bytes == '\n' || full ? 0 : filter->column + columns;
        putc(full ? '\n' : *bytes, to); /* a blank at the edge is the break */
        return;
    }
    if (full && filter->n_word && filter->word_columns < filter->column) {
        fprintf(to, "\033[%uG\033[K\n%.*s", filter->column - filter->word_columns + 1,
                (int)filter->n_word, filter->word);
        filter->column = filter->word_columns;
    } else if (full) {
        putc('\n', to);
        filter->column = 0;
        word_end(filter);
    }
    fwrite(bytes, 1, n, to);
    filter->column += columns;
    if (columns > 1 || filter->n_word + n > sizeof filter->word) {
        word_end(filter); /* ideographs break anywhere, and so do words without end */
    } else {
        memcpy(filter->word + filter->n_word, bytes, n);
        filter->n_word += n;
        filter->word_columns += columns;
    }
}

static void whole_put(term_filter *filter, const unsigned char *bytes, unsigned n, FILE *to) {
    bool control =
        n == 1 ? (bytes[0] < 0x20 && bytes[0] != '\n' && bytes[0] != '\t') || bytes[0] == 0x7f
               : n == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0;
    const char *text = control ? REPLACEMENT : (const char *)bytes;
    if (control) n = sizeof REPLACEMENT - 1;
    if (filter->width) {
        wrapped_put(filter, text, n, to);
    } else {
        fwrite(text, 1, n, to);
    }
}

static void replacement_put(term_filter *filter, FILE *to) {
    whole_put(filter, (const unsigned char *)REPLACEMENT, sizeof REPLACEMENT - 1, to);
}

void term_filter_add(term_filter *filter, FILE *to, const char *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)data[i];
        if (filter->n_held) {
            bool fits =
                filter->n_held == 1 ? second_fits(filter->held[0], byte) : (byte & 0xc0) == 0x80;
            if (fits) {
                filter->held[filter->n_held++] = byte;
                if (filter->n_held == filter->n_want) {
                    whole_put(filter, filter->held, filter->n_want, to);
                    filter->n_held = 0;
                }
                continue;
            }
            replacement_put(filter, to);
            filter->n_held = 0;
        }
        unsigned n = lead_size(byte);
        if (n == 1) {
            whole_put(filter, &byte, 1, to);
        } else if (n == 0) {
            replacement_put(filter, to);
        } else {
            filter->held[0] = byte;
            filter->n_held = 1;
            filter->n_want = n;
        }
    }
}

void term_filter_end(term_filter *filter, FILE *to) {
    if (filter->n_held) replacement_put(filter, to);
    filter->n_held = 0;
}

void term_print(FILE *to, const char *data, size_t size, bool line) {
    term_filter filter = {0};
    if (!line) {
        term_filter_add(&filter, to, data, size);
    } else {
        for (size_t i = 0; i < size; i++)
            term_filter_add(&filter, to, data[i] == '\n' || data[i] == '\t' ? " " : data + i, 1);
    }
    term_filter_end(&filter, to);
}

size_t term_columns(const char *text) {
    size_t columns = 0, left = strlen(text);
    mbstate_t state = {0};
    while (left) {
        wchar_t wide;
        size_t n = mbrtowc(&wide, text, left, &state);
        if (n == 0 || n > left) { /* broken: a column a byte */
            memset(&state, 0, sizeof state);
            n = 1;
            columns++;
        } else {
            int w = wcwidth(wide);
            columns += w > 0 ? (size_t)w : 0;
        }
        text += n;
        left -= n;
    }
    return columns;
}
