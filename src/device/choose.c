/* choose.c - which devices there are, and which one is opened.
 *
 * Owns the list of backends, the grammar of --device and what BERYL_CAPS switches off. */
#include "base/error.h"
#include "base/file.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

static const device_backend *const backends[] = {
#define X(name) &device_##name,
    DEVICE_BACKENDS(X)
#undef X
};
enum { N_BACKEND = sizeof backends / sizeof backends[0] };

/* ---- what is switched off -----------------------------------------------------------------------
 */

/* The words of BERYL_CAPS. BAD_INPUT names one that there is not: a device that kept what was to be
 * switched off would make a test say nothing. */
static beryl_status mask_read(device_mask *mask, beryl_error *error) {
    *mask = (device_mask){0};
    const struct {
        const char *word;
        bool *to;
    } words[] = {{"no-f16", &mask->no_f16},   {"no-subgroups", &mask->no_subgroups},
                 {"no-dot", &mask->no_dot},   {"no-timestamps", &mask->no_timestamps},
                 {"checked", &mask->checked}, {"min", &mask->min},
                 {"hard", &mask->hard},       {"few-buffers", &mask->few_buffers}};
    const char *at = base_environment("BERYL_CAPS");
    while (at && *at) {
        size_t size = strcspn(at, ", "), i = 0;
        const size_t n = sizeof words / sizeof *words;
        while (i < n && !base_view_equal((base_view){at, size}, base_view_of(words[i].word))) i++;
        if (i < n) *words[i].to = true;
        if (i == n && size)
            return base_fail(error, BERYL_BAD_INPUT,
                             "BERYL_CAPS has no word \"%.*s\": there are no-f16, no-subgroups, "
                             "no-dot, no-timestamps, checked, few-buffers, min and hard",
                             size > 40 ? 40 : (int)size, at);
        at += size + (at[size] != 0);
    }
    if (mask->min) mask->no_f16 = mask->no_subgroups = mask->no_dot = true;
    return BERYL_OK;
}

static uint32_t least32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint64_t least64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void mask_apply(const device_mask *mask, device_caps *caps) {
    /* tests: the forms that GPUs get, in software */
    if (mask->hard && caps->kind == DEVICE_SOFTWARE) {
        caps->kind = DEVICE_INTEGRATED;
        caps->compute_units = 8;
        caps->dot_i8 = true; /* all WGSL has it */
    }
    if (mask->no_f16) caps->f16 = false;
    if (mask->no_subgroups) caps->subgroups = false, caps->subgroup_size = 0;
    if (mask->no_dot) caps->dot_i8 = false, caps->dot_words = 0;
    if (mask->no_timestamps) caps->timestamps = false;
    /* what some browsers offer at most */
    if (mask->few_buffers) caps->storage_max = least32(caps->storage_max, 10);
    if (!mask->min) return;
    caps->workgroup_invocations = least32(caps->workgroup_invocations, 256);
    caps->workgroup_size[0] = least32(caps->workgroup_size[0], 256);
    caps->workgroup_size[1] = least32(caps->workgroup_size[1], 256);
    caps->workgroup_size[2] = least32(caps->workgroup_size[2], 64);
    caps->workgroup_bytes = least32(caps->workgroup_bytes, 16 << 10);
    caps->storage_max = least32(caps->storage_max, 8);
    caps->binding_max = least64(caps->binding_max, 128 << 20);
    caps->buffer_max = least64(caps->buffer_max, 256 << 20);
}

/* ---- choosing -------------------------------------------------------------------------------- */

typedef struct candidate {
    device_caps caps;
    uint32_t backend; /* index into backends */
    bool usable;
    char why_not[200];
} candidate;

typedef struct candidates {
    base_heap *heap;          /* borrowed */
    void *drivers[N_BACKEND]; /* NULL: did not start */
    base_vec(candidate) list; /* best first */
} candidates;

static void text_copy(char *to, size_t size, const char *from) {
    size_t n = strlen(from);
    if (n >= size) n = size - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

/* The order in which a choice looks at them. The processor as such is some three times as fast as
 * what imitates a GPU on it. */
enum { RANK_GPU, RANK_HOST, RANK_SOFTWARE, RANK_MEMORY, RANK_UNUSABLE };

static int rank_of(const candidate *c) {
    if (!c->usable) return RANK_UNUSABLE;
    if (!c->caps.languages) return RANK_MEMORY;
    if (!device_is_processor(&c->caps)) return RANK_GPU;
    return c->caps.kind == DEVICE_HOST ? RANK_HOST : RANK_SOFTWARE;
}

static bool add_candidate(candidates *all, uint32_t backend, const device_caps *caps,
                          const char *why_not) {
    candidate *c = base_vec_add(all->heap, &all->list);
    if (!c) return false;
    if (caps) c->caps = *caps;
    text_copy(c->caps.backend, sizeof c->caps.backend, backends[backend]->name);
    c->backend = backend;
    c->usable = !why_not;
    text_copy(c->why_not, sizeof c->why_not, why_not ? why_not : "");
    /* stable: within a rank backends keep their order, and their own devices theirs */
    candidate moved = *c;
    size_t at = all->list.count - 1;
    for (; at > 0 && rank_of(&all->list.data[at - 1]) > rank_of(&moved); at--)
        all->list.data[at] = all->list.data[at - 1];
    all->list.data[at] = moved;
    return true;
}

static void candidates_fini(candidates *all) {
    for (uint32_t i = 0; i < N_BACKEND; i++)
        if (all->drivers[i]) backends[i]->stop(all->drivers[i]);
    base_vec_fini(all->heap, &all->list);
}

/* only: a backend's index, or N_BACKEND for all that are not hidden. stop: looks no further once
 * there is a GPU (to start another driver may take a second): none of a later backend goes
 * before it. */
static beryl_status candidates_init(candidates *all, base_heap *heap, const beryl_log *log,
                                    uint32_t only, bool stop, beryl_error *error) {
    *all = (candidates){.heap = heap};
    for (uint32_t i = 0; i < N_BACKEND; i++) {
        if (stop && all->list.count && rank_of(&all->list.data[0]) == RANK_GPU) break;
        if (only < N_BACKEND ? i != only : backends[i]->hidden) continue;
        beryl_error why = {0};
        bool room = true;
        all->drivers[i] = backends[i]->start(heap, log, &why);
        if (!all->drivers[i]) {
            if (why.code == BERYL_NO_MEMORY) goto no_memory;
            room = add_candidate(all, i, NULL, why.message);
        } else {
            uint32_t n = backends[i]->count(all->drivers[i]);
            for (uint32_t k = 0; k < n && room; k++) {
                device_caps caps = {0};
                const char *why_not = NULL;
                backends[i]->describe(all->drivers[i], k, &caps, &why_not);
                caps.index = k;
                caps.languages = backends[i]->languages;
                room = add_candidate(all, i, &caps, why_not);
            }
            if (!n) room = add_candidate(all, i, NULL, "no adapter found");
        }
        if (!room) goto no_memory;
    }
    return BERYL_OK;
no_memory:
    candidates_fini(all);
    return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for devices");
}

void device_list(base_heap *heap, const beryl_log *log,
                 void (*each)(void *user, const device_caps *caps, const char *why_not),
                 void *user) {
    candidates all;
    if (candidates_init(&all, heap, log, N_BACKEND, false, NULL)) return;
    device_mask mask;
    beryl_error error = {0};
    bool known = mask_read(&mask, &error) == BERYL_OK;
    for (size_t i = 0; i < all.list.count; i++) {
        candidate *c = &all.list.data[i];
        if (known) mask_apply(&mask, &c->caps);
        each(user, &c->caps, !c->usable ? c->why_not : known ? NULL : error.message);
    }
    candidates_fini(&all);
}

static bool find_part(const char *text, base_view part) {
    size_t size = strlen(text);
    for (size_t at = 0; at + part.size <= size; at++) {
        size_t i = 0;
        while (i < part.size) {
            char a = text[at + i], b = part.data[i];
            if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
            if (b >= 'A' && b <= 'Z') b = (char)(b + 32);
            if (a != b) break;
            i++;
        }
        if (i == part.size) return true;
    }
    return false;
}

static uint32_t backend_named(base_view name) {
    for (uint32_t i = 0; i < N_BACKEND; i++)
        if (base_view_equal(base_view_of(backends[i]->name), name)) return i;
    return N_BACKEND;
}

/* An index of at most 9 digits, or false. */
static bool parse_index(base_view text, uint32_t *index) {
    if (!text.size || text.size > 9) return false;
    *index = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        *index = *index * 10 + (uint32_t)(text.data[i] - '0');
    }
    return true;
}

/* Words for the best device of a kind; DEVICE_ANY: it is none of them. */
typedef enum device_word { DEVICE_ANY, DEVICE_CPU, DEVICE_GPU, DEVICE_IMITATION } device_word;

static device_word word_of(base_view text) {
    if (base_view_equal(text, BASE_VIEW("cpu"))) return DEVICE_CPU;
    if (base_view_equal(text, BASE_VIEW("gpu"))) return DEVICE_GPU;
    return base_view_equal(text, BASE_VIEW("software")) ? DEVICE_IMITATION : DEVICE_ANY;
}

static bool word_fits(device_word word, const device_caps *caps) {
    switch (word) {
    case DEVICE_ANY: break;
    case DEVICE_CPU: return device_is_processor(caps);
    case DEVICE_GPU: return !device_is_processor(caps);
    case DEVICE_IMITATION: return caps->kind == DEVICE_SOFTWARE;
    }
    return false;
}

/* `rest`: what follows the backend, or all; named: a backend was. The list is best first, so the
 * first match is the best one. usable: of these alone, else of the others, where a backend that
 * could not start stands for all of its devices. */
static const candidate *choose(const candidates *all, base_view rest, bool named, bool usable) {
    uint32_t index = 0;
    const bool by_index = parse_index(rest, &index);
    const device_word word = word_of(rest);
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable != usable || (!named && !c->caps.languages)) continue;
        if (!rest.size || !c->caps.name[0] || (by_index && c->caps.index == index) ||
            word_fits(word, &c->caps))
            return c;
    }
    if (by_index || word != DEVICE_ANY || !rest.size) return NULL;
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable == usable && (named || c->caps.languages) && find_part(c->caps.name, rest))
            return c;
    }
    return NULL;
}

/* Why the processor itself is not usable, or NULL. */
static const char *host_why_not(const candidates *all) {
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (!c->usable && !strcmp(c->caps.backend, "host")) return c->why_not;
    }
    return NULL;
}

/* The processor imitates a GPU since it is not usable as such: what that costs. */
static void warn_software(const candidates *all, const candidate *c, const beryl_log *log) {
    const char *why_not = rank_of(c) == RANK_SOFTWARE ? host_why_not(all) : NULL;
    if (why_not)
        base_log(log, BERYL_LOG_WARNING,
                 "the processor imitates a GPU (%s), some five times slower than it could be: %s",
                 c->caps.name, why_not);
}

/* fit: what the choice means but is not usable; NULL: nothing that there is. */
static beryl_status refuse_choice(const candidates *all, const char *choice, const candidate *fit,
                                  beryl_error *error) {
    static const char *const kinds[] = {"discrete", "integrated", "software", "host"};
    if (fit)
        return base_fail(error, BERYL_NO_DEVICE, "%.40s is not usable: %s", choice, fit->why_not);
    base_text there;
    base_text_init(&there, all->heap);
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable)
            base_text_print(&there, "%s%s:%u (%s, %s)", i ? ", " : "", c->caps.backend,
                            c->caps.index, c->caps.name, kinds[c->caps.kind]);
        else
            base_text_print(&there, "%s%s (not usable: %s)", i ? ", " : "", c->caps.backend,
                            c->why_not);
    }
    const char *list = there.data && !there.failed ? there.data : "none";
    beryl_status status;
    if (!choice || !*choice)
        status = base_fail(
            error, BERYL_NO_DEVICE,
            "no device was found: the processor needs a C compiler (apt install gcc "
            "libc6-dev, or the like); device \"reference\" needs nothing and is slow; there is: %s",
            list);
    else if (word_of(base_view_of(choice)) == DEVICE_GPU)
        status = base_fail(
            error, BERYL_NO_DEVICE,
            "there is no GPU that can be used (--device gpu); there is: %s; and reference", list);
    else
        status =
            base_fail(error, BERYL_NO_DEVICE,
                      "no device is called \"%.40s\"; there is: %s; and reference", choice, list);
    base_text_fini(&there);
    return status;
}

beryl_status device_open(base_heap *heap, const beryl_log *log, const char *choice, device **out,
                         beryl_error *error) {
    *out = NULL;
    base_view rest = base_view_of(choice);
    const bool best = !rest.size;
    const bool gpu = word_of(rest) == DEVICE_GPU;
    uint32_t only = backend_named(rest);
    if (only < N_BACKEND) {
        rest.size = 0;
    } else {
        const char *colon = rest.size ? memchr(rest.data, ':', rest.size) : NULL;
        base_view before = {rest.data, colon ? (size_t)(colon - rest.data) : 0};
        const uint32_t named = backend_named(before);
        if (named < N_BACKEND && colon[1]) { /* nothing behind the colon names nothing */
            only = named;
            rest = (base_view){colon + 1, rest.size - before.size - 1};
        }
    }
    device_mask mask;
    candidates all;
    beryl_status status = mask_read(&mask, error);
    if (!status) status = candidates_init(&all, heap, log, only, best || gpu, error);
    if (status) return status;
    const candidate *c = choose(&all, rest, only < N_BACKEND, true);
    if (!c) {
        const candidate *fit = best ? NULL : choose(&all, rest, only < N_BACKEND, false);
        status = refuse_choice(&all, choice, fit, error);
    } else {
        status = backends[c->backend]->open(all.drivers[c->backend], &c->caps, &mask, out, error);
        if (!status) {
            if (best) warn_software(&all, c, log);
            mask_apply(&mask, &(*out)->caps);
            base_log(log, BERYL_LOG_INFO, "device %s:%u: %s, %s", c->caps.backend, c->caps.index,
                     (*out)->caps.name, (*out)->caps.driver);
        }
    }
    candidates_fini(&all);
    return status;
}

void device_backend_names(uint32_t languages, char *to, size_t size) {
    size_t at = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < N_BACKEND && at < size; i++) {
        const device_backend *b = backends[i];
        if (b->hidden || !(b->languages & languages)) continue;
        at += (size_t)snprintf(to + at, size - at, "%s%s", at ? ", " : "", b->name);
    }
}

void device_forgo(device *d, bool f16, bool subgroups, bool dot) {
    mask_apply(&(device_mask){.no_f16 = f16, .no_subgroups = subgroups, .no_dot = dot}, &d->caps);
}
