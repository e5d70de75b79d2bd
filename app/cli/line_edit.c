/* line_edit.c - line editing and history by libedit. It owns the terminal while a message is typed:
 * Ctrl-C clears it, Ctrl-D on an empty line ends the chat, pasted newlines stay inside the message.
 *
 * Reading goes through a function of our own, since libedit retries an interrupted read, and since
 * the window's size and a continued job are looked after there. The history lies in
 * $XDG_STATE_HOME/beryl/history, for its user alone. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "line.h"

#include "base/file.h"

#include <errno.h>
#include <histedit.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };

struct line_source {
    cli *c;
    EditLine *el;
    History *history;
    FILE *to;        /* where the prompt appears */
    char path[1024]; /* of the history; empty: none is kept */
    char prompt[48];
    bool more; /* a message goes on: the other prompt */
    unsigned width;
    bool interrupted;
};

static volatile sig_atomic_t continued;

static void continue_handle(int number) {
    (void)number;
    continued = 1;
}

/* ---- what libedit calls ---------------------------------------------------------------------- */

static line_source *editor_of(EditLine *el) {
    void *user = NULL;
    el_get(el, EL_CLIENTDATA, &user);
    return user;
}

static char *prompt_get(EditLine *el) {
    line_source *e = editor_of(el);
    const term *t = &e->c->term;
    /* \1 encloses what takes no columns. */
    const char *bold = term_style_text(t, e->to, TERM_BOLD),
               *plain = term_style_text(t, e->to, TERM_PLAIN);
    snprintf(e->prompt, sizeof e->prompt, *bold ? "\1%s\1%s\1%s\1 " : "%s%s%s ", bold,
             e->more ? "..." : ">>>", plain);
    return e->prompt;
}

/* One character from the terminal: 1, 0 at its end, -1 interrupted. */
static int character_read(EditLine *el, wchar_t *out) {
    line_source *e = editor_of(el);
    mbstate_t state = {0};
    for (;;) {
        unsigned width = term_width();
        if (width != e->width) {
            e->width = width;
            el_resize(el);
        }
        char byte;
        int n = cli_key_read(&byte);
        if (n == 0) return 0;
        if (n < 0) {
            if (errno != EINTR) return -1;
            if (cli_interrupted()) {
                e->interrupted = true;
                return -1;
            }
            if (continued) { /* the shell has changed the terminal's modes meanwhile */
                continued = 0;
                el_set(el, EL_PREP_TERM, 1);
                el_set(el, EL_REFRESH);
            }
            continue;
        }
        size_t got = mbrtowc(out, &byte, 1, &state);
        if (got == (size_t)-2) continue;
        if (got == (size_t)-1) {
            memset(&state, 0, sizeof state);
            *out = 0xfffd;
        } else if (got == 0) {
            *out = 0;
        }
        return 1;
    }
}

static unsigned char newline_insert(EditLine *el, int key) {
    (void)key;
    return el_winsertstr(el, L"\n") ? CC_ERROR : CC_REFRESH;
}

/* Bracketed paste: all up to ESC [ 2 0 1 ~ is text. */
static unsigned char paste(EditLine *el, int key) {
    static const wchar_t end[] = L"\033[201~";
    enum { END = 6 };
    size_t matched = 0;
    wchar_t wide;
    (void)key;
    while (matched < END && el_wgetc(el, &wide) == 1) {
        if (wide == end[matched]) {
            matched++;
            continue;
        }
        matched = wide == end[0];
        if (matched) continue;
        if (wide == L'\r') wide = L'\n';
        if ((wide < 0x20 && wide != L'\n' && wide != L'\t') || (wide >= 0x7f && wide < 0xa0))
            continue;
        wchar_t text[2] = {wide, 0};
        if (el_winsertstr(el, text)) return CC_ERROR;
    }
    return CC_REFRESH;
}

/* Tab: the one command that begins so, or a list of those. */
static unsigned char complete(EditLine *el, int key) {
    const LineInfo *line = el_line(el);
    size_t n = (size_t)(line->cursor - line->buffer), n_found = 0, common = 0;
    const char *found = NULL;
    bool takes_more = false;
    (void)key;
    if (!n || line->buffer[0] != '/' || memchr(line->buffer, ' ', n)) return CC_ERROR;
    for (int i = 0; i < CHAT_COUNT; i++) {
        const char *name = chat_commands[i].name;
        if (strncmp(name, line->buffer, n)) continue;
        if (!n_found++) {
            found = name;
            common = strlen(name);
            takes_more = *chat_commands[i].arguments;
        }
        size_t same = 0;
        while (same < common && name[same] == found[same]) same++;
        common = same;
    }
    if (!n_found) return CC_ERROR;
    char text[32];
    snprintf(text, sizeof text, "%.*s%s", (int)(common - n), found + n,
             n_found == 1 && takes_more ? " " : "");
    if (*text) return el_insertstr(el, text) ? CC_ERROR : CC_REFRESH;
    line_source *e = editor_of(el);
    putc('\n', e->to);
    for (int i = 0; i < CHAT_COUNT; i++)
        if (!strncmp(chat_commands[i].name, line->buffer, n))
            fprintf(e->to, "%s  ", chat_commands[i].name);
    putc('\n', e->to);
    return CC_REDISPLAY;
}

/* ---- history --------------------------------------------------------------------------------- */

static void history_find(line_source *e) {
    const char *state = base_environment("XDG_STATE_HOME"), *home = base_environment("HOME");
    char folder[900];
    int n = -1;
    if (state && *state == '/') {
        n = snprintf(folder, sizeof folder, "%s/beryl", state);
    } else if (home) {
        n = snprintf(folder, sizeof folder, "%s/.local/state/beryl", home);
    }
    if (n < 0 || (size_t)n >= sizeof folder || base_folder_make(folder, NULL)) return;
    snprintf(e->path, sizeof e->path, "%s/history", folder);
}

void line_source_keep(line_source *e, const char *message) {
    HistEvent event;
    history(e->history, &event, H_ENTER, message);
    if (!*e->path) return;
    mode_t mask = umask(077);
    history(e->history, &event, H_SAVE, e->path);
    umask(mask);
    chmod(e->path, 0600); /* a file of an earlier version may be readable by others */
}

/* ---- open, read, close ----------------------------------------------------------------------- */

static void keys_bind(EditLine *el) {
    static const char *const keys[][2] = {
        {"^R", "em-inc-search-prev"},      {"^W", "ed-delete-prev-word"},
        {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5C", "em-next-word"},
        {"\\e[1;5D", "ed-prev-word"},      {"\\e[H", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},       {"\\e[200~", "beryl-paste"},
        {"\\e^J", "beryl-newline"},        {"\\e^M", "beryl-newline"},
        {"^I", "beryl-complete"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

line_source *line_source_open(cli *c, FILE *to) {
    line_source *e = base_heap_take(&c->heap, sizeof *e);
    if (!e) {
        cli_no_memory(c);
        return NULL;
    }
    HistEvent event;
    e->c = c;
    e->to = to;
    e->width = term_width();
    e->el = el_init("beryl", stdin, e->to, stderr);
    e->history = history_init();
    if (!e->el || !e->history) {
        cli_fail(c, "the line editor could not be started");
        line_source_close(e);
        return NULL;
    }
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 0);
    el_set(e->el, EL_PROMPT_ESC, prompt_get, '\1');
    el_wset(e->el, EL_GETCFN, character_read);
    el_wset(e->el, EL_ADDFN, L"beryl-paste", L"insert pasted text", paste);
    el_wset(e->el, EL_ADDFN, L"beryl-newline", L"insert a newline", newline_insert);
    el_wset(e->el, EL_ADDFN, L"beryl-complete", L"complete a command", complete);
    keys_bind(e->el);
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->el, EL_HIST, history, e->history);
    history_find(e);
    if (*e->path) history(e->history, &event, H_LOAD, e->path);
    el_source(e->el, NULL); /* the user's ~/.editrc has the last word on keys */
    struct sigaction action = {.sa_handler = continue_handle};
    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, NULL);
    return e;
}

void line_source_close(line_source *e) {
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->el) el_end(e->el);
    base_heap_give(&e->c->heap, e, sizeof *e);
}

static void paste_mode(const line_source *e, bool on) {
    if (!e->c->term.moves) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", e->to);
    fflush(e->to);
}

const char *line_source_read(line_source *e, bool more, size_t *size, line_end *end) {
    int n = 0;
    e->more = more;
    e->interrupted = false;
    fflush(stdout);
    paste_mode(e, true);
    const char *line = el_gets(e->el, &n);
    paste_mode(e, false);
    if (line && n > 0 && !e->interrupted) {
        *size = (size_t)n - (line[n - 1] == '\n');
        return line;
    }
    fputs(e->interrupted ? "^C\n" : "\n", e->to);
    el_reset(e->el);
    *end = e->interrupted ? LINE_CLEARED : LINE_EOF;
    return NULL;
}
