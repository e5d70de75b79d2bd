/* forms.c - see forms.h. */
#define _POSIX_C_SOURCE 200809L
#include "forms.h"
#include "interpreter.h"
#include "rig_stand_in.h"

#include <stdlib.h>
#include <string.h>

const test_form test_forms[TEST_FORMS] = {
    /* as it is: what the host runs */
    {.name = "interpreter", .device = "interpreter", .brief = true, .drawn = true},
    {.name = "interpreter-gpu", .device = "interpreter", .as_gpu = true, .brief = true},
    {.name = "interpreter-gpu-drawn",
     .device = "interpreter",
     .as_gpu = true,
     .brief = true,
     .drawn = true},
    {.name = "host", .device = "host"},
    {.name = "opencl", .device = "opencl", .brief = true},
    {.name = "software", .device = "webgpu:software", .brief = true},
    {.name = "gpu-smallest",
     .device = "webgpu:software",
     .caps = "min",
     .as_gpu = true,
     .brief = true},
    {.name = "cuda", .device = "cuda", .brief = true, .stand_in = true},
    {.name = "hip", .device = "hip", .brief = true, .stand_in = true},
    {.name = "chosen", .device = ""},
};

size_t test_form_count(void) {
    return TEST_FORMS - !getenv("BERYL_TEST_DEVICE");
}

beryl_status test_form_open(const test_form *form, base_heap *heap, device **d,
                            beryl_error *error) {
    const char *before = getenv("BERYL_CAPS");
    char *kept = before ? strdup(before) : NULL;
    if (form->caps) setenv("BERYL_CAPS", form->caps, 1);
    const bool stand_in = form->stand_in && rig_stand_in(form->device);
    beryl_status status;
    if (!strcmp(form->device, "interpreter"))
        status = (*d = interpreter_open(heap)) ? BERYL_OK : BERYL_NO_MEMORY;
    else
        status = device_open(heap, NULL, *form->device ? form->device : getenv("BERYL_TEST_DEVICE"),
                             d, error);
    if (stand_in) rig_stand_in_end(form->device);
    if (kept) setenv("BERYL_CAPS", kept, 1);
    else unsetenv("BERYL_CAPS");
    free(kept);
    if (status == BERYL_OK && form->as_gpu) {
        (*d)->caps.kind = DEVICE_DISCRETE;
        /* both caches in one binding */
        if (form->drawn) (*d)->caps.storage_max = 10;
        if (!form->caps) (*d)->caps.subgroups = true, (*d)->caps.subgroup_size = 8;
    }
    return status;
}

void test_form_close(device *d) {
    device_close(d);
}

bool test_form_draws(const test_form *form, size_t i, size_t number, bool brief) {
    if (form->brief) return test_drawn(i, number, 4);
    return !brief || strcmp(form->device, "host") != 0 || test_drawn(i, number, 2);
}

static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

bool test_form_round(test *t, const test_form *form, device *d, uint64_t *round) {
    const uint64_t first = number("BERYL_TEST_SEED", 1),
                   rounds = form->drawn ? number("BERYL_TEST_ROUNDS", 1) : 1;
    if (form->drawn && *round && test_failed(t))
        test_fail(t, __FILE__, __LINE__, "with BERYL_TEST_SEED=%llu",
                  (unsigned long long)(first + *round - 1));
    if (*round == rounds || test_failed(t)) return false;
    if (form->drawn) interpreter_draw(d, first + *round);
    ++*round;
    return true;
}
