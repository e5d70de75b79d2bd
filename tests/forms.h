/* forms.h - the devices on which kernels are tested, in the forms that their lowering chooses
 * between: the interpreter as a processor and as a GPU (as other devices
 * compute, and by chance), host C, OpenCL, and WGSL on the software device in both forms. */
#ifndef TESTS_FORMS_H
#define TESTS_FORMS_H

#include "test.h"

#include "device/device.h"

typedef struct test_form {
    const char *name;   /* in names of cases */
    const char *device; /* as for device_open, or "interpreter" */
    const char *caps;   /* BERYL_CAPS; NULL: as it is */
    bool as_gpu;
    bool brief; /* compiles or runs slowly: cases that add little are left out */
    /* the interpreter under passes and schedules by chance: interpreter_draw */
    bool drawn;
    /* where there is no such device, the tests' own driver; of each kind the smallest case
     * alone, which compiles for a second */
    bool stand_in;
} test_form;

enum { TEST_FORMS = 10 };
/* The last one is the device that BERYL_TEST_DEVICE (environment) names, for GPUs; without it
 * there is one form less. */
extern const test_form test_forms[TEST_FORMS];
size_t test_form_count(void);

/* Opens the device and sets the environment for plans on it. NO_DEVICE: skip. */
beryl_status test_form_open(const test_form *form, base_heap *heap, device **d, beryl_error *error);
void test_form_close(device *d); /* NULL is fine */

/* Of a suite's cases those of a form: one of four, on the host one of two and all that other forms
 * leave out (not `brief`), on the chosen device all. number: of the form. */
bool test_form_draws(const test_form *form, size_t i, size_t number, bool brief);

/* true: run the case (again). A drawn form runs a case BERYL_TEST_ROUNDS times (else once), each
 * with the next seed from BERYL_TEST_SEED (else 1) on, and says with which one it failed.
 * *round: 0 at first. */
bool test_form_round(test *t, const test_form *form, device *d, uint64_t *round);

#endif
