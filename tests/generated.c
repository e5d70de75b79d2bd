/* generated.c - see generated.h. */
#define _POSIX_C_SOURCE 200809L
#include "generated.h"
#include "interpreter.h"

#include <stdlib.h>
#include <string.h>

const generated_form generated_forms[GENERATED_FORMS] = {
    {"interpreter", "interpreter", NULL, false, false, true},
    {"interpreter-gpu", "interpreter", NULL, true, false, true},
    {"host", "host", NULL, false, false, false},
    {"opencl", "opencl", NULL, false, false, true},
    {"generated", "software", NULL, false, true, true},
    {"generated-gpu", "software", "min", true, true, true},
    {"chosen", "", NULL, false, true, false},
};

size_t generated_count(void) {
    return GENERATED_FORMS - !getenv("BERYL_TEST_DEVICE");
}

beryl_status generated_open(const generated_form *form, base_heap *heap, device **d, beryl_error *error) {
    const char *before = getenv("BERYL_CAPS");
    char *kept = before ? strdup(before) : NULL;
    if (form->caps) setenv("BERYL_CAPS", form->caps, 1);
    beryl_status status;
    if (!strcmp(form->device, "interpreter")) status = (*d = interpreter_open(heap)) ? BERYL_OK : BERYL_NO_MEMORY;
    else status = device_open(heap, NULL, *form->device ? form->device : getenv("BERYL_TEST_DEVICE"), d, error);
    if (kept) setenv("BERYL_CAPS", kept, 1);
    else unsetenv("BERYL_CAPS");
    free(kept);
    if (status == BERYL_OK && form->as_gpu) {
        (*d)->caps.kind = DEVICE_DISCRETE;
        if (!form->caps) (*d)->caps.subgroups = true, (*d)->caps.subgroup_size = 8;
    }
    if (form->kernels) setenv("BERYL_KERNELS", "generated", 1);
    return status;
}

void generated_close(device *d) {
    unsetenv("BERYL_KERNELS");
    device_close(d);
}
