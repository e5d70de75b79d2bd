/* args.c - reads the command line by the tables in args.h. Every value is checked here, once, so
 * that commands never see a malformed one. */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const args_command_info args_commands[COMMAND_COUNT] = {
#define X(id, name, arguments, what, least, most) {name, arguments, what, least, most},
    ARGS_COMMAND_LIST(X)
#undef X
};

const args_flag_info args_flags[FLAG_COUNT] = {
#define X(id, name, letter, kind, value, commands, what) \
    {name, letter, ARGS_##kind, value, commands, what},
    ARGS_FLAG_LIST(X)
#undef X
};

args_command args_command_find(const char *name) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(args_commands[i].name, name)) return (args_command)i;
    return COMMAND_NONE;
}

/* ---- did you mean ---------------------------------------------------------------------------- */

enum { NAME_MOST = 31 };

/* How many letters have to be changed, left out, added, or exchanged with their neighbour. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][NAME_MOST + 1];
    for (size_t k = 0; k <= m; k++) rows[0][k] = k;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *higher = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t k = 1; k <= m; k++) {
            size_t best = above[k - 1] + (a[i - 1] != b[k - 1]);
            if (above[k] + 1 < best) best = above[k] + 1;
            if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
            bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (swapped && higher[k - 2] + 1 < best) best = higher[k - 2] + 1;
            row[k] = best;
        }
    }
    return rows[n % 3][m];
}

const char *args_nearest(const char *given, size_t size, const char *const *names, size_t n) {
    const char *nearest = NULL;
    if (size < 2 || size > NAME_MOST) return NULL;
    size_t least = size < 4 ? 2 : size < 8 ? 3 : 4; /* what is so far away is another word */
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(names[i]);
        size_t away = m > NAME_MOST ? least : distance(given, size, names[i], m);
        if (size >= 3 && m > size && !memcmp(given, names[i], size)) away = 1; /* its beginning */
        if (away < least) least = away, nearest = names[i];
    }
    return nearest;
}

/* By name (letter 0) or by letter. FLAG_COUNT: the command has no such flag. */
static args_flag flag_find(args_command command, const char *name, size_t size, char letter) {
    for (int i = 0; i < FLAG_COUNT; i++) {
        const args_flag_info *info = &args_flags[i];
        if (!(info->commands & (1u << command))) continue;
        if (letter ? info->letter == letter : !strncmp(info->name, name, size) && !info->name[size])
            return (args_flag)i;
    }
    return FLAG_COUNT;
}

static bool whole_parse(const char *text, uint64_t most, uint64_t *out, const char **end) {
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (most - digit) / 10 || digit > most) return false;
        value = value * 10 + digit;
    }
    *end = p;
    *out = value;
    return p != text && value <= most;
}

bool args_list_parse(const char *text, uint64_t most, base_heap *heap, uint32_t **data,
                     size_t *count, size_t *capacity) {
    for (const char *p = text;; p++) {
        uint64_t value;
        while (*p == ' ') p++;
        if (!whole_parse(p, most, &value, &p) || *count >= ARGS_LIST_MAX) return false;
        if (!base_vec_grow(heap, (void **)data, *count, capacity, 1, sizeof **data)) return false;
        (*data)[(*count)++] = (uint32_t)value;
        while (*p == ' ') p++;
        if (!*p) return true;
        if (*p != ',') return false;
    }
}

bool args_size_parse(const char *text, uint64_t *bytes) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    double value = strtod(text, &end);
    static const char units[] = "KMGT";
    double unit = 1;
    const char *at = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (at) {
        for (const char *p = units; p <= at; p++) unit *= 1024;
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (*end || !(value * unit < 9e18)) return false;
    *bytes = (uint64_t)(value * unit);
    return true;
}

/* The index of `text` among the words of "a|b|c". */
static bool choice_parse(const char *words, const char *text, uint64_t *index) {
    size_t size = strlen(text);
    *index = 0;
    for (const char *p = words;; (*index)++) {
        size_t n = strcspn(p, "|");
        if (n == size && !memcmp(p, text, n)) return true;
        if (!p[n]) return false;
        p += n + 1;
    }
}

static const char *kind_text(args_kind kind) {
    switch (kind) {
    case ARGS_COUNT: return "a whole number up to 4294967295";
    case ARGS_SEED: return "a whole number";
    case ARGS_SIZE: return "a size in bytes, like 512M or 6G";
    case ARGS_NUMBER: return "a number";
    case ARGS_LIST: return "whole numbers separated by commas, like 2,10,11";
    case ARGS_TEXTS:
    case ARGS_FILES: return "given at most 16 times";
    case ARGS_MEDIA: return "given at most 32 times, with others of its kind";
    case ARGS_CHOICE:
    case ARGS_SWITCH:
    case ARGS_TEXT:
    case ARGS_FILE: break;
    }
    return "text";
}

static bool value_set(args *a, base_heap *heap, args_flag flag, const char *text) {
    args_value *value = &a->values[flag];
    const args_flag_info *info = &args_flags[flag];
    const char *end;
    char *end_number;
    value->count++;
    value->text = text;
    switch (info->kind) {
    case ARGS_SWITCH:
    case ARGS_TEXT:
    case ARGS_FILE: return true;
    case ARGS_TEXTS:
        if (a->n_texts == ARGS_TEXTS_MAX) return false;
        a->texts[a->n_texts++] = text;
        return true;
    case ARGS_FILES:
        if (a->n_files == ARGS_TEXTS_MAX) return false;
        a->files[a->n_files++] = text;
        return true;
    case ARGS_MEDIA:
        if (a->n_media == ARGS_MEDIA_MAX) return false;
        a->media[a->n_media].flag = flag;
        a->media[a->n_media++].path = text;
        return true;
    case ARGS_COUNT: return whole_parse(text, UINT32_MAX, &value->integer, &end) && !*end;
    case ARGS_SEED: return whole_parse(text, UINT64_MAX, &value->integer, &end) && !*end;
    case ARGS_SIZE: return args_size_parse(text, &value->integer);
    case ARGS_NUMBER:
        value->number = strtod(text, &end_number);
        return *text && !*end_number && isfinite(value->number);
    case ARGS_LIST:
        a->list[flag].count = 0; /* the last one counts */
        return args_list_parse(text, INT32_MAX, heap, &a->list[flag].data, &a->list[flag].count,
                               &a->list[flag].capacity);
    case ARGS_CHOICE: return choice_parse(info->value, text, &value->integer);
    }
    return false;
}

static bool value_refused(args_flag flag, const char *text, char *message, size_t size) {
    const args_flag_info *info = &args_flags[flag];
    if (info->kind == ARGS_CHOICE) {
        snprintf(message, size, "--%s is one of %s, not '%s'", info->name, info->value, text);
    } else {
        snprintf(message, size, "--%s is %s, not '%s'", info->name, kind_text(info->kind), text);
    }
    return false;
}

static bool flag_unknown(const args *a, const char *given, char *message, size_t size) {
    const char *names[FLAG_COUNT], *command = args_commands[a->command].name;
    size_t n = 0, dashes = strspn(given, "-");
    for (int i = 0; i < FLAG_COUNT; i++)
        if (args_flags[i].commands & (1u << a->command)) names[n++] = args_flags[i].name;
    const char *meant = args_nearest(given + dashes, strcspn(given + dashes, "="), names, n);
    snprintf(message, size, "%s has no flag '%s'%s%s%s see 'beryl help %s'", command, given,
             meant ? ": did you mean --" : "", meant ? meant : "", meant ? "? Or" : ";", command);
    return false;
}

/* "--name", "--name=value"; *i is left at the last argument that was used. */
static bool long_parse(args *a, base_heap *heap, int argc, char **argv, int *i, char *message,
                       size_t size) {
    const char *name = argv[*i] + 2, *value = strchr(name, '=');
    size_t n = value ? (size_t)(value - name) : strlen(name);
    args_flag flag = flag_find(a->command, name, n, 0);
    if (flag == FLAG_COUNT) return flag_unknown(a, argv[*i], message, size);
    if (value) value++;
    if (args_flags[flag].kind == ARGS_SWITCH) {
        if (value) {
            snprintf(message, size, "--%s takes no value", args_flags[flag].name);
            return false;
        }
    } else if (!value) {
        if (*i + 1 == argc) {
            snprintf(message, size, "--%s needs a value: --%s %s", args_flags[flag].name,
                     args_flags[flag].name, args_flags[flag].value);
            return false;
        }
        value = argv[++*i];
    }
    return value_set(a, heap, flag, value) || value_refused(flag, value, message, size);
}

/* "-v", "-vv", "-n 5", "-n5". */
static bool short_parse(args *a, base_heap *heap, int argc, char **argv, int *i, char *message,
                        size_t size) {
    size_t n = strcspn(argv[*i] + 1, "=");
    if (n > 1 && flag_find(a->command, argv[*i] + 1, n, 0) != FLAG_COUNT)
        return flag_unknown(a, argv[*i], message, size); /* a name wants two dashes */
    for (const char *p = argv[*i] + 1; *p; p++) {
        args_flag flag = flag_find(a->command, NULL, 0, *p);
        if (flag == FLAG_COUNT) return flag_unknown(a, argv[*i], message, size);
        if (args_flags[flag].kind == ARGS_SWITCH) {
            value_set(a, heap, flag, NULL);
            continue;
        }
        const char *value = p[1] ? p + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value) {
            snprintf(message, size, "-%c needs a value: -%c %s", *p, *p, args_flags[flag].value);
            return false;
        }
        return value_set(a, heap, flag, value) || value_refused(flag, value, message, size);
    }
    return true;
}

void args_command_unknown(const char *name, char *message, size_t size) {
    size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, ".gguf")) {
        snprintf(message, size, "no command '%s'; to run that file: beryl run %s", name, name);
        return;
    }
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) names[i] = args_commands[i].name;
    const char *meant = args_nearest(name, n, names, COMMAND_COUNT);
    snprintf(message, size, "no command '%s'%s%s%s see 'beryl help'", name,
             meant ? ": did you mean '" : "", meant ? meant : "", meant ? "'? Or" : ";");
}

static bool command_parse(args *a, const char *word, char *message, size_t size) {
    a->command = args_command_find(word);
    if (a->command != COMMAND_NONE) return true;
    args_command_unknown(word, message, size);
    return false;
}

static bool positional_check(const args *a, char *message, size_t size) {
    const args_command_info *info = &args_commands[a->command];
    if (args_has(a, FLAG_HELP)) return true;
    size_t n = a->n_positional + args_has(a, FLAG_MODEL);
    /* --model stands for the first argument; perplexity's file is still wanted then. */
    size_t least = info->least + (info->least && args_has(a, FLAG_MODEL));
    if (n >= least && n <= info->most) return true;
    snprintf(message, size, "%s %s: beryl %s%s%s", info->name,
             n < least ? "needs more arguments" : "was given too many arguments", info->name,
             *info->arguments ? " " : "", info->arguments);
    return false;
}

bool args_parse(args *a, base_heap *heap, int argc, char **argv, char *message, size_t size) {
    *a = (args){.command = COMMAND_NONE};
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool is_flag = word[0] == '-' && word[1] && !only_words;
        if (a->command == COMMAND_NONE) {
            if (!strcmp(word, "--version") || !strcmp(word, "-V")) return a->version = true;
            if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
                a->command = COMMAND_HELP;
            } else if (is_flag) {
                snprintf(message, size, "the command comes before its flags: beryl COMMAND %s",
                         word);
                return false;
            } else if (!command_parse(a, word, message, size)) {
                return false;
            }
        } else if (!only_words && !strcmp(word, "--")) {
            only_words = true;
        } else if (is_flag) {
            bool ok = word[1] == '-' ? long_parse(a, heap, argc, argv, &i, message, size)
                                     : short_parse(a, heap, argc, argv, &i, message, size);
            if (!ok) return false;
        } else if (a->n_positional < args_commands[a->command].most) {
            a->positional[a->n_positional++] = word;
        } else {
            snprintf(message, size, "%s does not know what to do with '%s'; see 'beryl help %s'",
                     args_commands[a->command].name, word, args_commands[a->command].name);
            return false;
        }
    }
    if (a->command == COMMAND_NONE) {
        snprintf(message, size, "no command given");
        return false;
    }
    return positional_check(a, message, size);
}

void args_fini(args *a, base_heap *heap) {
    for (int i = 0; i < FLAG_COUNT; i++) base_vec_fini(heap, &a->list[i]);
}

bool args_has(const args *a, args_flag flag) {
    return a->values[flag].count > 0;
}

const char *args_text(const args *a, args_flag flag) {
    return a->values[flag].text;
}

uint32_t args_count(const args *a, args_flag flag, uint32_t otherwise) {
    return args_has(a, flag) ? (uint32_t)a->values[flag].integer : otherwise;
}

float args_number(const args *a, args_flag flag, float otherwise) {
    return args_has(a, flag) ? (float)a->values[flag].number : otherwise;
}
