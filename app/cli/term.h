/* term.h - the terminal: what it can show, colours, the progress line, and the filter that keeps
 * control characters of models and files away from it. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include "base/memory.h"

#include <stdio.h>

typedef struct term {
    bool in_tty, out_tty, err_tty;
    bool colour_out, colour_err; /* a terminal, no NO_COLOR, TERM not dumb */
    bool moves;                  /* stderr can redraw its line */
    bool drawn;                  /* a progress line stands on it */
    const char *what;            /* the running phase (compared by content) */
    char what_text[64];
    double since, last; /* start of the phase, last drawing; seconds */
    unsigned column;    /* where an answer's text ends on the line; 0: the line is free */
} term;

void term_init(term *t);
unsigned term_width(void); /* columns of stderr, 80 where not known */

/* Draws or redraws "what [####....] 45 %" on stderr, a third of a second after the phase began at
 * the earliest; below the line where text stands on it. total 0: not known. `note` may be NULL. */
void term_progress(term *t, const char *what, uint64_t done, uint64_t total, const char *note);
void term_clear(term *t); /* takes the progress line away: the phase is over */
void term_lift(term *t);  /* for text in its place; the phase goes on below it at once */

typedef enum term_style {
    TERM_PLAIN,
    TERM_DIM,
    TERM_BOLD,
    TERM_GREEN,
    TERM_RED,
    TERM_YELLOW
} term_style;
/* The escape sequence, or "" where this stream shows no colours. */
const char *term_style_text(const term *t, FILE *stream, term_style style);

/* Cleans a stream of UTF-8 that comes in pieces: C0 (but \n and \t), DEL, C1 and broken UTF-8
 * become U+FFFD. With a width, which only a terminal may have, a word that reaches the edge is
 * taken back and begins the next line. */
typedef struct term_filter {
    unsigned char held[4];
    unsigned n_held, n_want;
    unsigned width, column; /* 0: lines are left as they are */
    unsigned word_columns, n_word;
    char word[160]; /* the running word, as far as it is known */
} term_filter;

void term_filter_add(term_filter *filter, FILE *to, const char *data, size_t size);
void term_filter_end(term_filter *filter, FILE *to);
/* A whole text at once; newlines and tabs become spaces where `line`. */
void term_print(FILE *to, const char *data, size_t size, bool line);
/* How many columns a UTF-8 text takes, counted by the locale. */
size_t term_columns(const char *text);

#endif
