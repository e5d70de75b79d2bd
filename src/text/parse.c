/* parse.c - from the model's tokens to text, thoughts and calls.
 *
 * Owns the state of one answer. Refuses nothing that a model may write: an unclosed call is closed,
 * a stray closing token ignored, what is no call at all becomes text. The one idea: the structure
 * is in the token ids, so text that merely looks like a tag is text; in a call's text the quote
 * token is the byte 0xFF, which no valid UTF-8 contains.
 */
#include "text/chat.h"

#include "base/error.h"

#include <string.h>

#define MARK '\xFF' /* the quote token */
#define DEPTH_MAX \
    60 /* of a call's arguments; with the call's own two levels below the 64 of base_json */

typedef struct item_range {
    text_item_kind kind;
    size_t begin, size; /* in text_parser.out */
} item_range;

typedef enum parser_state { IN_TEXT, IN_THOUGHT, IN_CALL } parser_state;

struct text_parser {
    base_heap *heap;           /* borrowed */
    const text_tokenizer *tok; /* borrowed */
    text_stream stream;
    parser_state state;
    base_text fresh;            /* what the last token completed */
    base_text out;              /* texts of the items */
    base_text blanks;           /* blanks at the end of the part so far: shown if text follows */
    base_text call;             /* the call so far */
    base_vec(item_range) items; /* [items.count], given out up to `given` */
    size_t given;
    bool begun; /* the part has shown something */
    int head;   /* bytes of "thought\n" seen at the start of a thought, -1: past it */
    bool no_memory;
};

static const char thought_head[] = "thought\n";

static void item_add(text_parser *p, text_item_kind kind, const char *data, size_t size) {
    if (!size) return;
    size_t n = p->items.count;
    if (n && p->items.data[n - 1].kind == kind &&
        kind != TEXT_ITEM_CALL) { /* items of one kind join: texts lie in a row */
        p->items.data[n - 1].size += size;
    } else {
        item_range *item = base_vec_add(p->heap, &p->items);
        if (!item) {
            p->no_memory = true;
            return;
        }
        *item = (item_range){kind, p->out.size, size};
    }
    base_text_add(&p->out, data, size);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Text or thought: line ends before it are dropped, blanks behind it held back. */
static void show(text_parser *p, const char *data, size_t size) {
    text_item_kind kind = p->state == IN_THOUGHT ? TEXT_ITEM_THOUGHT : TEXT_ITEM_TEXT;
    size_t begin = 0, end = size;
    if (!p->begun)
        while (begin < end && (data[begin] == '\n' || data[begin] == '\r')) begin++;
    while (end > begin && is_blank(data[end - 1])) end--;
    if (end > begin) {
        item_add(p, kind, p->blanks.data, p->blanks.size);
        base_text_clear(&p->blanks);
        item_add(p, kind, data + begin, end - begin);
    }
    if (begin < size) p->begun = true;
    base_text_add(&p->blanks, data + end, size - end);
}

static void feed(text_parser *p, const char *data, size_t size) {
    if (p->state == IN_CALL) {
        base_text_add(&p->call, data, size);
        item_add(p, TEXT_ITEM_CALL_TEXT, data, size);
        return;
    }
    while (p->state == IN_THOUGHT && p->head >= 0 && size) {
        if (*data != thought_head[p->head]) {
            size_t n = (size_t)p->head;
            p->head = -1;
            show(p, thought_head, n);
            break;
        }
        data++, size--, p->head++;
        if (!thought_head[p->head]) p->head = -1;
    }
    if (size) show(p, data, size);
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct reader {
    const char *p, *end;
    base_text *out;
    base_arena *arena;
} reader;

static void skip_blanks(reader *r) {
    while (r->p < r->end && is_blank(*r->p)) r->p++;
}

static base_view trim_blanks(const char *begin, const char *end) {
    while (begin < end && is_blank(*begin)) begin++;
    while (end > begin && is_blank(end[-1])) end--;
    return (base_view){begin, (size_t)(end - begin)};
}

/* A string between quote tokens, to the end where the second one is missing. */
static void read_marked(reader *r) {
    const char *begin = ++r->p;
    const char *close = memchr(begin, MARK, (size_t)(r->end - begin));
    base_json_write_string(r->out, begin, (size_t)((close ? close : r->end) - begin));
    r->p = close ? close + 1 : r->end;
}

/* A string as JSON writes it, which models fall back to. false: no such string here. */
static bool read_quoted(reader *r) {
    const char *p = r->p + 1;
    while (p < r->end && *p != '"' && *p != MARK) p += *p == '\\' && p + 1 < r->end ? 2 : 1;
    if (p >= r->end || *p != '"') return false;
    base_json *value = NULL;
    if (!base_json_parse(r->arena, r->p, (size_t)(p + 1 - r->p), &value, NULL) &&
        value->kind == JSON_STRING)
        base_json_write_string(r->out, value->text.data, value->text.size);
    else base_json_write_string(r->out, r->p + 1, (size_t)(p - r->p - 1));
    r->p = p + 1;
    return true;
}

static bool is_number(base_view text) {
    size_t i = 0, n = text.size, begin;
    const char *p = text.data;
    if (i < n && p[i] == '-') i++;
    for (begin = i; i < n && p[i] >= '0' && p[i] <= '9'; i++) {}
    if (i == begin || (p[begin] == '0' && i > begin + 1)) return false;
    if (i < n && p[i] == '.') {
        for (begin = ++i; i < n && p[i] >= '0' && p[i] <= '9'; i++) {}
        if (i == begin) return false;
    }
    if (i < n && (p[i] == 'e' || p[i] == 'E')) {
        i++;
        if (i < n && (p[i] == '+' || p[i] == '-')) i++;
        for (begin = i; i < n && p[i] >= '0' && p[i] <= '9'; i++) {}
        if (i == begin) return false;
    }
    return i == n;
}

/* true, false, null and numbers are themselves, anything else is a string without its quotes. */
static void read_bare(reader *r) {
    const char *begin = r->p;
    while (r->p < r->end && *r->p != ',' && *r->p != '}' && *r->p != ']' && *r->p != MARK) r->p++;
    base_view text = trim_blanks(begin, r->p);
    bool literal = base_view_equal(text, BASE_VIEW("true")) ||
                   base_view_equal(text, BASE_VIEW("false")) ||
                   base_view_equal(text, BASE_VIEW("null"));
    if (!text.size) base_text_add(r->out, "null", 4);
    else if (literal || is_number(text)) base_text_add_view(r->out, text);
    else base_json_write_string(r->out, text.data, text.size);
}

static bool read_members(reader *r, int depth);

static bool read_value(reader *r, int depth) {
    bool first = true;
    skip_blanks(r);
    if (r->p == r->end) {
        base_text_add(r->out, "null", 4);
    } else if (*r->p == MARK) {
        read_marked(r);
    } else if (*r->p == '{') {
        r->p++;
        return read_members(r, depth + 1);
    } else if (*r->p == '[') {
        if (depth >= DEPTH_MAX) return false;
        r->p++;
        base_text_add(r->out, "[", 1);
        for (;;) {
            while (r->p < r->end && (is_blank(*r->p) || *r->p == ',')) r->p++;
            if (r->p == r->end || *r->p == ']' || *r->p == '}') break;
            if (!first) base_text_add(r->out, ",", 1);
            first = false;
            if (!read_value(r, depth + 1)) return false;
        }
        if (r->p < r->end && *r->p == ']') r->p++;
        base_text_add(r->out, "]", 1);
    } else if (*r->p != '"' || !read_quoted(r)) {
        read_bare(r);
    }
    return true;
}

static void read_key(reader *r) {
    if (*r->p == MARK) {
        read_marked(r);
    } else if (*r->p != '"' || !read_quoted(r)) {
        const char *begin = r->p;
        while (r->p < r->end && *r->p != ':' && *r->p != ',' && *r->p != '}' && *r->p != MARK)
            r->p++;
        base_view key = trim_blanks(begin, r->p);
        base_json_write_string(r->out, key.data, key.size);
    }
    while (r->p < r->end && *r->p != ':' && *r->p != ',' && *r->p != '}') r->p++;
}

/* Behind the opening brace, up to and with the closing one or to the end. false: too deep. */
static bool read_members(reader *r, int depth) {
    bool first = true;
    if (depth > DEPTH_MAX) return false;
    base_text_add(r->out, "{", 1);
    for (;;) {
        while (r->p < r->end && (is_blank(*r->p) || *r->p == ',' || *r->p == ']')) r->p++;
        if (r->p == r->end || *r->p == '}') break;
        if (!first) base_text_add(r->out, ",", 1);
        first = false;
        read_key(r);
        base_text_add(r->out, ":", 1);
        if (r->p < r->end && *r->p == ':') {
            r->p++;
            if (!read_value(r, depth)) return false;
            while (r->p < r->end && *r->p != ',' && *r->p != '}') r->p++; /* what nobody can mean */
        } else {
            base_text_add(r->out, "null", 4);
        }
    }
    if (r->p < r->end) r->p++;
    base_text_add(r->out, "}", 1);
    return true;
}

/* `call:NAME{...}` to JSON. false: no call. */
static bool call_read(base_view call, base_arena *arena, base_text *out) {
    const base_view prefix = BASE_VIEW("call:");
    base_view text = trim_blanks(call.data, call.data + call.size);
    if (base_view_begins(text, prefix))
        text = (base_view){text.data + prefix.size, text.size - prefix.size};
    const char *brace = text.size ? memchr(text.data, '{', text.size) : NULL,
               *end = text.data + text.size;
    base_view name = trim_blanks(text.data, brace ? brace : end);
    if (!name.size || name.size > 256) return false;
    for (size_t i = 0; i < name.size; i++)
        if (is_blank(name.data[i]) || name.data[i] == MARK || (uint8_t)name.data[i] < ' ')
            return false;
    base_text_add(out, "{\"name\":", 8);
    base_json_write_string(out, name.data, name.size);
    base_text_add(out, ",\"arguments\":", 13);
    reader r = {brace ? brace + 1 : end, end, out, arena};
    if (!read_members(&r, 1)) return false;
    base_text_add(out, "}", 1);
    return true;
}

static void call_end(text_parser *p) {
    base_text json;
    base_arena arena;
    base_view call = {p->call.data, p->call.size};
    if (!call.size || !trim_blanks(call.data, call.data + call.size).size) return;
    base_text_init(&json, p->heap);
    base_arena_init(&arena, p->heap);
    if (call_read(call, &arena, &json)) {
        item_add(p, TEXT_ITEM_CALL, json.data, json.size);
    } else if (!json.failed) { /* no call: its text, so that nothing is lost */
        for (const char *at = call.data, *end = at + call.size; at < end;) {
            const char *mark = memchr(at, MARK, (size_t)(end - at));
            item_add(p, TEXT_ITEM_TEXT, at, (size_t)((mark ? mark : end) - at));
            if (mark) item_add(p, TEXT_ITEM_TEXT, "<|\"|>", 5);
            at = mark ? mark + 1 : end;
        }
    }
    if (json.failed) p->no_memory = true;
    base_text_fini(&json);
    base_arena_fini(&arena);
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Ends the part at hand: what is held back comes out or is dropped. */
static void part_end(text_parser *p, parser_state next) {
    base_text_clear(&p->fresh);
    text_stream_finish(&p->stream, &p->fresh);
    if (p->fresh.size) feed(p, p->fresh.data, p->fresh.size);
    if (p->state == IN_CALL) call_end(p);
    if (p->state == IN_THOUGHT && p->head > 0 && thought_head[p->head] != '\n') {
        size_t n = (size_t)p->head; /* it only began like the head */
        p->head = -1;
        show(p, thought_head, n);
    }
    base_text_clear(&p->blanks);
    base_text_clear(&p->call);
    p->begun = false;
    p->head = next == IN_THOUGHT ? 0 : -1;
    p->state = next;
}

static bool is_special(const text_parser *p, int32_t id, text_special_name name) {
    return id >= 0 && id == text_special(p->tok, name);
}

static beryl_status parser_status(text_parser *p, beryl_error *error) {
    if (p->fresh.failed || p->out.failed || p->blanks.failed || p->call.failed) p->no_memory = true;
    if (!p->no_memory) return BERYL_OK;
    p->items.count = p->given = 0;
    return base_fail(error, BERYL_NO_MEMORY, "no memory for the answer");
}

static void items_clear(text_parser *p) {
    p->items.count = p->given = 0;
    base_text_clear(&p->out);
}

beryl_status text_parser_push(text_parser *p, int32_t id, beryl_error *error) {
    items_clear(p);
    if (is_special(p, id, TEXT_SPECIAL_CHANNEL)) {
        part_end(p, IN_THOUGHT);
    } else if (is_special(p, id, TEXT_SPECIAL_CHANNEL_END)) {
        if (p->state == IN_THOUGHT) part_end(p, IN_TEXT);
    } else if (is_special(p, id, TEXT_SPECIAL_CALL)) {
        part_end(p, IN_CALL);
    } else if (is_special(p, id, TEXT_SPECIAL_CALL_END)) {
        if (p->state == IN_CALL) part_end(p, IN_TEXT);
    } else if (is_special(p, id, TEXT_SPECIAL_RESPONSE) ||
               is_special(p, id, TEXT_SPECIAL_RESPONSE_END) || text_is_stop(p->tok, id)) {
        part_end(p, IN_TEXT);
    } else if (p->state == IN_CALL && is_special(p, id, TEXT_SPECIAL_QUOTE)) {
        base_text_clear(&p->fresh);
        text_stream_finish(&p->stream, &p->fresh);
        feed(p, p->fresh.data, p->fresh.size);
        base_text_add(&p->call, &(char){MARK}, 1);
        item_add(p, TEXT_ITEM_CALL_TEXT, "<|\"|>", 5);
    } else {
        base_text_clear(&p->fresh);
        beryl_status status = text_stream_push(&p->stream, id, &p->fresh, error);
        if (status) return status;
        feed(p, p->fresh.data, p->fresh.size);
    }
    return parser_status(p, error);
}

beryl_status text_parser_finish(text_parser *p, beryl_error *error) {
    items_clear(p);
    part_end(p, IN_TEXT);
    return parser_status(p, error);
}

bool text_parser_next(text_parser *p, text_item *item) {
    if (p->given == p->items.count) return false;
    const item_range *range = &p->items.data[p->given++];
    *item = (text_item){range->kind, {p->out.data + range->begin, range->size}};
    return true;
}

bool text_parser_in_thought(const text_parser *p) {
    return p->state == IN_THOUGHT;
}

beryl_status text_parser_open(base_heap *heap, const text_tokenizer *tok, bool in_thought,
                              text_parser **out, beryl_error *error) {
    text_parser *p = *out = base_heap_take(heap, sizeof *p);
    if (!p) return base_fail(error, BERYL_NO_MEMORY, "no memory for the answer");
    p->heap = heap;
    p->tok = tok;
    p->head = -1; /* a prompt that opens a thought has written its head */
    p->state = in_thought ? IN_THOUGHT : IN_TEXT;
    text_stream_init(&p->stream, tok, false);
    base_text_init(&p->fresh, heap);
    base_text_init(&p->out, heap);
    base_text_init(&p->blanks, heap);
    base_text_init(&p->call, heap);
    return BERYL_OK;
}

void text_parser_close(text_parser *p) {
    if (!p) return;
    base_text_fini(&p->fresh);
    base_text_fini(&p->out);
    base_text_fini(&p->blanks);
    base_text_fini(&p->call);
    base_vec_fini(p->heap, &p->items);
    base_heap_give(p->heap, p, sizeof *p);
}
