/* module.h - what the files of the modules share: the frame and the JSON of options.
 *
 * The default module is module.c and libc.c; the full one has the files module_*.c besides. Each of
 * those exports one theme, and begins its calls with frame_begin and ends them with what gives. */
#ifndef WEB_MODULE_H
#define WEB_MODULE_H

#include "base/json.h"
#include "beryl.h"

#define IMPORT(name) __attribute__((import_module("beryl"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

typedef struct frame {   /* offsets in bytes stand in engine.ts too */
    uint32_t kind, part; /* 0: of an event */
    int32_t token;       /* 8 */
    uint32_t ok;
    const char *text; /* 16 */
    uint32_t text_size;
    const char *what;    /* 24 */
    const void *out;     /* 28: what a call gives: a text, a list, a session, a task */
    double done, total;  /* 32: of an event */
    double value;        /* 48 */
    uint32_t out_size;   /* 56: bytes of a text, elements of a list */
    uint32_t code;       /* 60: status of the last failure */
    const char *message; /* 64 */
    uint32_t message_size;
    double at;                                     /* 72 */
    uint32_t end, n_prompt, n_reused, n_generated; /* 80: of a result */
    double prefill_s, first_token_s, decode_s;     /* 96 */
    /* C's own from here on */
    beryl_engine *engine;
    beryl_error error;
    base_heap heap;
    base_text given; /* `out`, where the frame owns it */
    void *handed;    /* the same, where the engine does */
} frame;

_Static_assert(offsetof(frame, prefill_s) == 96 && offsetof(frame, done) == 32 &&
                   offsetof(frame, at) == 72,
               "engine.ts reads these");

/* Before a call: what the last one gave goes. */
void frame_begin(frame *f);
/* Ends a call: the error of a failed one is told. */
uint32_t frame_ended(frame *f, beryl_status status);
uint32_t frame_failed(frame *f, beryl_status status);
/* Ends a call that gives: what the engine has handed out, now the frame's; the text in `given`; a
 * thing that is not owned. */
uint32_t frame_hand(frame *f, beryl_status status, void *memory, size_t size);
uint32_t frame_give_text(frame *f);
uint32_t frame_give_thing(frame *f, beryl_status status, const void *thing);
/* ,"key":value into `given`. */
void frame_add_text(frame *f, const char *key, const char *text);
void frame_add_number(frame *f, const char *key, double value);
void frame_add_truth(frame *f, const char *key, bool value);
void frame_add_device(frame *f, const beryl_device_info *d);

/* The source with this number in JavaScript, and JavaScript's log. */
beryl_source module_source_of(uint32_t number, double size);
beryl_log module_log_of(void);

/* Of an object of options, 0 where there is no such key or it is of another kind. */
double option_number(const base_json *options, const char *key);
uint64_t option_count(const base_json *options, const char *key, uint64_t most);
bool option_truth(const base_json *options, const char *key);
/* Place of the key's text among `names`, which end with NULL; 0 where it is none of them. */
int option_choice(const base_json *options, const char *key, const char *const *names);
/* A copy in the arena; NULL where it is no text. */
const char *option_text(base_arena *arena, const base_json *value);

#endif
