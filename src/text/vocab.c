/* vocab.c - opens a vocabulary: indices from text to id and from pairs of ids to merges.
 *
 * Owns those indices; the texts stay in the copy of the file's head. Refuses ids outside the
 * vocabulary, merges of tokens that it lacks, and vocabularies without merges. The one idea: two
 * open-addressing tables, so that opening is one pass over the file's
 * strings. Hashes are seeded, so that no file can choose its collisions.
 */
#include "text/vocab.h"

#include "base/error.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static const char *const special_literals[TEXT_SPECIAL_COUNT] = {
#define X(name, literal) literal,
    TEXT_SPECIAL_LIST(X)
#undef X
};

const char *text_special_literal(text_special_name name) {
    return special_literals[name];
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int text_byte_of(base_view text) {
    if (text.size != 6 || memcmp(text.data, "<0x", 3) || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* ---- text to id ------------------------------------------------------------------------------ */

/* The token whose text is `a` and `b` together. */
static int32_t find(const text_tokenizer *tok, uint64_t hash, base_view a, base_view b) {
    uint64_t tag = hash >> 32;
    for (size_t i = (size_t)hash & (tok->n_slot - 1);; i = (i + 1) & (tok->n_slot - 1)) {
        uint64_t slot = tok->slots[i];
        if (!slot) return -1;
        if (slot >> 32 != tag) continue;
        int32_t id = (int32_t)((uint32_t)slot - 1);
        base_view text = tok->tokens[id];
        if (text.size == a.size + b.size && !memcmp(text.data, a.data, a.size) &&
            (!b.size || !memcmp(text.data + a.size, b.data, b.size)))
            return id;
    }
}

int32_t text_find(const text_tokenizer *tok, base_view text) {
    if (!text.size) return -1;
    return find(tok, base_hash(text.data, text.size, tok->seed), text, (base_view){"", 0});
}

static void slots_fill(text_tokenizer *tok) {
    size_t mask = tok->n_slot - 1;
    for (size_t id = 0; id < tok->n_token; id++) {
        base_view text = tok->tokens[id];
        if (!text.size) continue; /* nothing in a text can be it */
        uint64_t hash = base_hash(text.data, text.size, tok->seed), tag = hash >> 32;
        size_t i = (size_t)hash & mask;
        for (; tok->slots[i]; i = (i + 1) & mask) {
            base_view other = tok->tokens[(uint32_t)tok->slots[i] - 1];
            if (tok->slots[i] >> 32 == tag && base_view_equal(other, text))
                break; /* of equal texts the first counts */
        }
        if (!tok->slots[i]) tok->slots[i] = tag << 32 | (uint64_t)(id + 1);
    }
}

/* ---- pairs to merges ------------------------------------------------------------------------- */

static size_t merge_slot(const text_tokenizer *tok, int32_t left, int32_t right) {
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ tok->seed;
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
    return (size_t)(x ^ x >> 33) & (tok->n_merge_slot - 1);
}

/* The pair's slot, or the empty one where it would be. */
static uint32_t *merge_place(const text_tokenizer *tok, int32_t left, int32_t right) {
    for (size_t i = merge_slot(tok, left, right);; i = (i + 1) & (tok->n_merge_slot - 1)) {
        uint32_t *place = &tok->merge_slots[i];
        if (!*place) return place;
        const text_merge *merge = &tok->merges[*place - 1];
        if (merge->left == left && merge->right == right) return place;
    }
}

const text_merge *text_merge_find(const text_tokenizer *tok, int32_t left, int32_t right) {
    const uint32_t rank = *merge_place(tok, left, right);
    return rank ? &tok->merges[rank - 1] : NULL;
}

/* Half a million merges are 1.5 million look-ups, each of which would wait for memory three times:
 * they go in blocks, and what a block will need is asked for ahead (0.26 s to 0.11 s for the real
 * vocabulary). */
enum { BLOCK = 32, BLOCKS = 32 /* between two looks at the time */ };

typedef struct split {
    base_view text, left, right;
    uint64_t hash[3]; /* of left, right, both joined */
    int32_t id[3];
} split;

/* joined: room for the longest two tokens. false: not two tokens that the vocabulary could have. */
static bool split_merge(const text_tokenizer *tok, size_t longest, char *joined, split *out) {
    const base_view text = out->text;
    const char *space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (!space || space + 1 == text.data + text.size) return false;
    size_t n_left = (size_t)(space - text.data), n_right = text.size - n_left - 1;
    if (n_left > longest || n_right > longest) return false;
    out->left = (base_view){text.data, n_left};
    out->right = (base_view){space + 1, n_right};
    memcpy(joined, text.data, n_left);
    memcpy(joined + n_left, space + 1, n_right);
    out->hash[0] = base_hash(joined, n_left, tok->seed);
    out->hash[1] = base_hash(joined + n_left, n_right, tok->seed);
    out->hash[2] = base_hash(joined, n_left + n_right, tok->seed);
    return true;
}

static void block_find(const text_tokenizer *tok, split *block, size_t n) {
    const base_view none = {"", 0};
    size_t mask = tok->n_slot - 1;
    for (size_t i = 0; i < 3 * n; i++)
        __builtin_prefetch(&tok->slots[block[i / 3].hash[i % 3] & mask]);
    for (size_t i = 0; i < 3 * n; i++) {
        uint64_t slot = tok->slots[block[i / 3].hash[i % 3] & mask];
        if (slot) __builtin_prefetch(&tok->tokens[(uint32_t)slot - 1]);
    }
    for (size_t i = 0; i < 3 * n; i++) {
        uint64_t slot = tok->slots[block[i / 3].hash[i % 3] & mask];
        if (slot) __builtin_prefetch(tok->tokens[(uint32_t)slot - 1].data);
    }
    for (split *s = block; s < block + n; s++) {
        s->id[0] = find(tok, s->hash[0], s->left, none);
        s->id[1] = find(tok, s->hash[1], s->right, none);
        s->id[2] = find(tok, s->hash[2], s->left, s->right);
        __builtin_prefetch(&tok->merge_slots[merge_slot(tok, s->id[0], s->id[1])]);
    }
}

static bool mixes_newline(base_view text) {
    size_t n = 0;
    if (!memchr(text.data, '\n', text.size)) return false;
    for (size_t i = 0; i < text.size; i++) n += text.data[i] == '\n';
    return n < text.size - 1; /* one is the blank between */
}

static void merge_add(text_tokenizer *tok, const split *s, size_t rank) {
    uint32_t *place = merge_place(tok, s->id[0], s->id[1]);
    if (*place || !text_may_encode(tok, s->id[2])) return; /* of equal merges the first counts */
    tok->merges[rank] = (text_merge){s->id[0], s->id[1], s->id[2]};
    *place = (uint32_t)rank + 1;
}

static beryl_status block_fill(text_tokenizer *tok, beryl_error *error) {
    const size_t first = tok->n_merged, left = tok->n_merge - first,
                 n = left < BLOCK ? left : BLOCK;
    size_t n_split = 0, k = 0;
    split block[BLOCK];
    for (; n_split < n; n_split++) {
        block[n_split].text = tok->next_merge(&tok->merge_at);
        if (!split_merge(tok, tok->longest, tok->joined, &block[n_split])) break;
    }
    block_find(tok, block, n_split);
    for (; k < n_split && block[k].id[0] >= 0 && block[k].id[1] >= 0 && block[k].id[2] >= 0; k++) {
        merge_add(tok, &block[k], first + k);
        if (mixes_newline(block[k].text)) tok->newline_apart = false;
    }
    tok->n_merged += k;
    if (k == n) return BERYL_OK;
    base_view text = block[k].text;
    return base_fail(error, BERYL_BAD_FILE,
                     "merge %zu of the vocabulary (\"%.*s\") is not of two tokens that it has",
                     first + k, (int)(text.size < 64 ? text.size : 64), text.size ? text.data : "");
}

static void joined_give(text_tokenizer *tok) {
    base_heap_give(tok->heap, tok->joined, tok->joined ? 2 * tok->longest + 1 : 0);
    tok->joined = NULL;
}

beryl_status text_tokenizer_step(text_tokenizer *tok, double seconds, beryl_error *error) {
    const double until = base_time() + seconds;
    while (tok->n_merged < tok->n_merge) {
        for (int i = 0; i < BLOCKS && tok->n_merged < tok->n_merge; i++) {
            const beryl_status status = block_fill(tok, error);
            if (status != BERYL_OK) return status;
        }
        if (base_time() > until) return BERYL_EVENT;
    }
    joined_give(tok);
    return BERYL_OK;
}

/* ---- kinds and literals ---------------------------------------------------------------------- */

static bool is_special_literal(base_view text) {
    for (size_t i = 0; i < TEXT_SPECIAL_COUNT; i++)
        if (base_view_equal(text, base_view_of(special_literals[i]))) return true;
    return false;
}

/* Byte tokens and the chat format's literals are what they are whatever the file says of them: a
 * file that calls "<|turn>" normal would otherwise let it be written by anybody, or by nobody. */
static beryl_status kinds_fill(text_tokenizer *tok, const int32_t *types, beryl_error *error) {
    for (size_t id = 0; id < tok->n_token; id++) {
        base_view text = tok->tokens[id];
        int32_t type = types ? types[id] : TEXT_KIND_NORMAL;
        if (type < 0 || type > TEXT_KIND_BYTE)
            return base_fail(error, BERYL_BAD_FILE,
                             "token %zu of the vocabulary has the unknown type %d", id, (int)type);
        if (type == 0) type = TEXT_KIND_NORMAL;
        bool special = type == TEXT_KIND_CONTROL || type == TEXT_KIND_USER_DEFINED ||
                       type == TEXT_KIND_UNKNOWN;
        if (text_byte_of(text) >= 0) {
            type = TEXT_KIND_BYTE;
        } else if (type == TEXT_KIND_BYTE) {
            return base_fail(error, BERYL_BAD_FILE,
                             "token %zu of the vocabulary is a byte without a value", id);
        } else if (!special && text.size && text.data[0] == '<' && is_special_literal(text)) {
            type = TEXT_KIND_CONTROL;
        } else if (special && text.size > TEXT_LITERAL_MAX) {
            return base_fail(
                error, BERYL_UNSUPPORTED,
                "token %zu of the vocabulary is a special one of %zu bytes, more than %d", id,
                text.size, TEXT_LITERAL_MAX);
        }
        tok->kinds[id] = (uint8_t)type;
    }
    return BERYL_OK;
}

/* Does the token mean something to the chat format? Of user-defined tokens those in the format's
 * list and all of its look,
 * "<|name>" and "<name|>"; what remains (runs of blanks, HTML tags in some vocabularies) is plain
 * text. */
static bool can_forge(const text_tokenizer *tok, int32_t id) {
    if (tok->kinds[id] == TEXT_KIND_CONTROL || tok->kinds[id] == TEXT_KIND_UNKNOWN) return true;
    if (tok->kinds[id] != TEXT_KIND_USER_DEFINED) return false;
    base_view text = tok->tokens[id];
    return base_view_begins(text, BASE_VIEW("<|")) || base_view_ends(text, BASE_VIEW("|>")) ||
           is_special_literal(text);
}

bool text_literal_wanted(const text_tokenizer *tok, int32_t id, text_special_mode mode) {
    switch (mode) {
    case TEXT_USER_DEFINED: return tok->kinds[id] == TEXT_KIND_USER_DEFINED;
    case TEXT_ALL: return true;
    case TEXT_CONTENT: return !can_forge(tok, id);
    }
    return false;
}

bool text_may_encode(const text_tokenizer *tok, int32_t id) {
    return !can_forge(tok, id) && tok->kinds[id] != TEXT_KIND_BYTE;
}

static int literal_order(base_view a, base_view b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* Heap sort: qsort has no place for the texts, and some take memory that is not the caller's. */
static void literals_sort(const base_view *tokens, uint32_t *ids, size_t n) {
    for (size_t begin = n / 2, end = n; end > 1;) {
        if (begin) {
            begin--;
        } else {
            uint32_t last = ids[--end];
            ids[end] = ids[0];
            ids[0] = last;
        }
        for (size_t i = begin, child; (child = 2 * i + 1) < end; i = child) {
            if (child + 1 < end && literal_order(tokens[ids[child]], tokens[ids[child + 1]]) < 0)
                child++;
            if (literal_order(tokens[ids[i]], tokens[ids[child]]) >= 0) break;
            uint32_t id = ids[i];
            ids[i] = ids[child];
            ids[child] = id;
        }
    }
}

static beryl_status literals_fill(text_tokenizer *tok, beryl_error *error) {
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (size_t id = 0; id < tok->n_token; id++) {
            if (tok->kinds[id] == TEXT_KIND_NORMAL || tok->kinds[id] == TEXT_KIND_BYTE ||
                tok->kinds[id] == TEXT_KIND_UNUSED)
                continue;
            if (text_find(tok, tok->tokens[id]) != (int32_t)id)
                continue; /* empty, or not the first of its text */
            if (pass) tok->literals[n] = (uint32_t)id;
            n++;
        }
        if (!pass && n && !(tok->literals = base_heap_take(tok->heap, n * sizeof *tok->literals)))
            return base_fail(error, BERYL_NO_MEMORY,
                             "no memory for the vocabulary's special tokens");
        if (!pass) tok->n_literal = n;
    }
    literals_sort(tok->tokens, tok->literals, n);
    for (size_t i = 0, byte = 0; byte <= 256; byte++) {
        while (i < n && (uint8_t)tok->tokens[tok->literals[i]].data[0] < byte) i++;
        tok->literal_at[byte] = (uint32_t)i;
    }
    for (size_t i = 0; i < n; i++)
        for (int mode = 0; mode < TEXT_MODE_COUNT; mode++)
            if (text_literal_wanted(tok, (int32_t)tok->literals[i], (text_special_mode)mode))
                tok->literal_begins[mode][(uint8_t)tok->tokens[tok->literals[i]].data[0]] = true;
    return BERYL_OK;
}

/* ---- single ids and lists of ids ------------------------------------------------------------- */

static void characters_fill(text_tokenizer *tok) {
    for (int c = 0; c < 128; c++) {
        char byte = (char)c;
        int32_t id = text_find(tok, c == ' ' ? BASE_VIEW("\xE2\x96\x81") : (base_view){&byte, 1});
        tok->ascii[c] = id >= 0 && text_may_encode(tok, id) ? id : -1;
    }
    for (int b = 0; b < 256; b++) tok->bytes[b] = -1;
    for (size_t id = tok->n_token; id-- > 0;)
        if (tok->kinds[id] == TEXT_KIND_BYTE)
            tok->bytes[text_byte_of(tok->tokens[id])] = (int32_t)id;
}

static beryl_status special_take(text_tokenizer *tok, text_special_name name, int32_t id,
                                 const char *what, beryl_error *error) {
    if (id < -1 || id >= (int64_t)tok->n_token)
        return base_fail(error, BERYL_BAD_FILE,
                         "the %s token's id %d is outside of the vocabulary of %zu tokens", what,
                         (int)id, tok->n_token);
    if (id >= 0 && tok->special[name] < 0) tok->special[name] = id;
    return BERYL_OK;
}

static void id_add(int32_t *ids, size_t *n, int32_t id) {
    size_t i = *n;
    for (size_t k = 0; k < *n; k++)
        if (ids[k] == id) return;
    for (; i > 0 && ids[i - 1] > id; i--) ids[i] = ids[i - 1];
    ids[i] = id;
    ++*n;
}

/* A list of more entries than this is no list of stop tokens. It bounds the work of id_add. */
#define ID_LIST_MAX 4096

static beryl_status ids_fill(text_tokenizer *tok, const text_vocab_desc *desc, beryl_error *error) {
    for (size_t i = 0; i < TEXT_SPECIAL_COUNT; i++)
        tok->special[i] = text_find(tok, base_view_of(special_literals[i]));
    beryl_status status = special_take(tok, TEXT_SPECIAL_BOS, desc->bos, "BOS", error);
    if (!status) status = special_take(tok, TEXT_SPECIAL_EOS, desc->eos, "EOS", error);
    if (!status) status = special_take(tok, TEXT_SPECIAL_PAD, desc->pad, "padding", error);
    if (!status) status = special_take(tok, TEXT_SPECIAL_UNK, desc->unk, "unknown", error);
    if (status) return status;
    if (desc->n_eos > ID_LIST_MAX || desc->n_suppress > ID_LIST_MAX)
        return base_fail(error, BERYL_BAD_FILE,
                         "the vocabulary's list of %s tokens is longer than %d",
                         desc->n_eos > ID_LIST_MAX ? "end" : "suppressed", ID_LIST_MAX);
    for (size_t i = 0; i < desc->n_eos + desc->n_suppress; i++) {
        int32_t id = i < desc->n_eos ? desc->eos_ids[i] : desc->suppress[i - desc->n_eos];
        if (id < 0 || id >= (int64_t)tok->n_token)
            return base_fail(
                error, BERYL_BAD_FILE,
                "the vocabulary's list of %s tokens has the id %d outside of %zu tokens",
                i < desc->n_eos ? "end" : "suppressed", (int)id, tok->n_token);
    }
    tok->stop_capacity = desc->n_eos + 4;
    tok->stop = base_heap_take(tok->heap, tok->stop_capacity * sizeof *tok->stop);
    tok->suppressed_capacity = desc->n_suppress;
    if (tok->suppressed_capacity)
        tok->suppressed =
            base_heap_take(tok->heap, tok->suppressed_capacity * sizeof *tok->suppressed);
    if (!tok->stop || (tok->suppressed_capacity && !tok->suppressed))
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the vocabulary's lists");
    static const text_special_name ends[] = {TEXT_SPECIAL_EOS, TEXT_SPECIAL_TURN_END,
                                             TEXT_SPECIAL_RESPONSE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (tok->special[ends[i]] >= 0) id_add(tok->stop, &tok->n_stop, tok->special[ends[i]]);
    if (desc->eos >= 0) id_add(tok->stop, &tok->n_stop, desc->eos);
    for (size_t i = 0; i < desc->n_eos; i++) id_add(tok->stop, &tok->n_stop, desc->eos_ids[i]);
    for (size_t i = 0; i < desc->n_suppress; i++)
        id_add(tok->suppressed, &tok->n_suppressed, desc->suppress[i]);
    return BERYL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Slots for n entries: at most half of them used. */
static size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    return size;
}

static beryl_status sizes_check(const text_vocab_desc *desc, size_t *longest, beryl_error *error) {
    if (!desc->n_token || desc->n_token > INT32_MAX / 4)
        return base_fail(error, BERYL_BAD_FILE, "a vocabulary of %zu tokens", desc->n_token);
    if (!desc->n_merge)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the vocabulary has no merges: not byte-pair encoding as Gemma 4 uses it");
    if (desc->n_merge > INT32_MAX / 4)
        return base_fail(error, BERYL_BAD_FILE, "a vocabulary of %zu merges", desc->n_merge);
    *longest = 0;
    for (size_t id = 0; id < desc->n_token; id++) {
        if (desc->tokens[id].size > TEXT_SIZE_MAX)
            return base_fail(error, BERYL_BAD_FILE, "token %zu of the vocabulary has %zu bytes", id,
                             desc->tokens[id].size);
        if (desc->tokens[id].size > *longest) *longest = desc->tokens[id].size;
    }
    return BERYL_OK;
}

beryl_status text_tokenizer_open(base_heap *heap, const text_vocab_desc *desc, text_tokenizer **out,
                                 beryl_error *error) {
    size_t longest = 0;
    text_tokenizer *tok = NULL;
    *out = NULL;
    beryl_status status = sizes_check(desc, &longest, error);
    if (status) return status;
    if (!(tok = base_heap_take(heap, sizeof *tok))) goto no_memory;
    tok->heap = heap;
    tok->tokens = desc->tokens;
    tok->n_token = desc->n_token;
    tok->add_bos = desc->add_bos;
    tok->seed = base_random_seed();
    tok->n_slot = table_size(desc->n_token);
    tok->n_merge_slot = table_size(desc->n_merge);
    tok->kinds = base_heap_take(heap, tok->n_token);
    tok->slots = base_heap_take(heap, tok->n_slot * sizeof *tok->slots);
    tok->n_merge = desc->n_merge;
    tok->merges = base_heap_take(heap, tok->n_merge * sizeof *tok->merges);
    tok->merge_slots = base_heap_take(heap, tok->n_merge_slot * sizeof *tok->merge_slots);
    tok->longest = longest;
    tok->joined = base_heap_take(heap, 2 * longest + 1);
    tok->merge_at = desc->first_merge;
    tok->next_merge = desc->next_merge;
    tok->newline_apart = true;
    if (!tok->kinds || !tok->slots || !tok->merges || !tok->merge_slots || !tok->joined)
        goto no_memory;
    slots_fill(tok);
    status = kinds_fill(tok, desc->types, error);
    if (!status && !desc->stepwise) status = text_tokenizer_step(tok, INFINITY, error);
    if (!status) status = literals_fill(tok, error);
    if (!status) status = ids_fill(tok, desc, error);
    if (status) goto done;
    characters_fill(tok);
    *out = tok;
    goto done;
no_memory:
    status = base_fail(error, BERYL_NO_MEMORY, "no memory for a vocabulary of %zu tokens",
                       desc->n_token);
done:
    if (status) text_tokenizer_close(tok);
    return status;
}

void text_tokenizer_close(text_tokenizer *tok) {
    if (!tok) return;
    base_heap *heap = tok->heap;
    joined_give(tok);
    base_heap_give(heap, tok->kinds, tok->n_token);
    base_heap_give(heap, tok->slots, tok->n_slot * sizeof *tok->slots);
    base_heap_give(heap, tok->merges, tok->n_merge * sizeof *tok->merges);
    base_heap_give(heap, tok->merge_slots, tok->n_merge_slot * sizeof *tok->merge_slots);
    base_heap_give(heap, tok->literals, tok->n_literal * sizeof *tok->literals);
    base_heap_give(heap, tok->stop, tok->stop_capacity * sizeof *tok->stop);
    base_heap_give(heap, tok->suppressed, tok->suppressed_capacity * sizeof *tok->suppressed);
    base_heap_give(heap, tok, sizeof *tok);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

base_heap *text_heap(const text_tokenizer *tok) {
    return tok->heap;
}

size_t text_n_token(const text_tokenizer *tok) {
    return tok->n_token;
}

bool text_add_bos(const text_tokenizer *tok) {
    return tok->add_bos;
}

int32_t text_special(const text_tokenizer *tok, text_special_name name) {
    return tok->special[name];
}

bool text_is_stop(const text_tokenizer *tok, int32_t id) {
    for (size_t i = 0; i < tok->n_stop; i++)
        if (tok->stop[i] == id) return true;
    return false;
}

const int32_t *text_stop_ids(const text_tokenizer *tok, size_t *n) {
    *n = tok->n_stop;
    return tok->stop;
}

const int32_t *text_suppressed(const text_tokenizer *tok, size_t *n) {
    *n = tok->n_suppressed;
    return tok->suppressed;
}

static bool is_inside(const text_tokenizer *tok, int32_t id) {
    return id >= 0 && (size_t)id < tok->n_token;
}

base_view text_token(const text_tokenizer *tok, int32_t id) {
    return is_inside(tok, id) ? tok->tokens[id] : (base_view){"", 0};
}

text_kind text_token_kind(const text_tokenizer *tok, int32_t id) {
    return is_inside(tok, id) ? (text_kind)tok->kinds[id] : TEXT_KIND_UNKNOWN;
}
