/* program.c - text to a module, on worker threads, through the cache on disk.
 *
 * A module's file is found by its text, the compiler's options and version, the driver's version
 * and the chip. One that the driver does not take is compiled again, with a warning.
 */
#include "device/cuda/cuda.h"
#include "base/error.h"

#include <string.h>

static void key_of(const cuda *d, const driver_job *job, driver_cache_key *key) {
    *key = (driver_cache_key){{0}};
    driver_cache_key_add(key, d->chip, strlen(d->chip));
    driver_cache_key_add(key, d->versions, sizeof d->versions);
    for (uint32_t i = 0; i < d->n_option; i++)
        driver_cache_key_add(key, d->options[i], strlen(d->options[i]));
    driver_cache_key_add(key, job->source, job->source_size);
}

/* What the compiler said, as the job's error. */
static bool compile_failed(cuda *d, driver_job *job, cuda_text text) {
    size_t size = 0;
    if (d->c.log_size(text, &size)) size = 0;
    char *log = size && size < 1 << 24 ? base_heap_take(d->head.heap, size + 1) : NULL;
    if (log && d->c.log(text, log)) log[0] = 0;
    bool no = driver_compile_fail(&d->compiler, job, log, log ? strlen(log) : 0);
    base_heap_give(d->head.heap, log, log ? size + 1 : 0);
    return no;
}

/* The module's image: [*size + 1] bytes of the heap, the last one a NUL. */
static bool make_image(void *user, driver_job *job, void **image, size_t *size) {
    cuda *d = user;
    cuda_text text = NULL;
    *image = NULL;
    int code = d->c.make(&text, job->source, job->label, 0, NULL, NULL);
    if (code) {
        base_fail(&job->error, BERYL_DEVICE, "%s: the compiler does not start (%d)", job->label,
                  code);
        return false;
    }
    if (d->c.compile(text, (int)d->n_option, d->options)) {
        compile_failed(d, job, text);
        goto done;
    }
    code = d->ptx ? d->c.ptx_size(text, size) : d->c.code_size(text, size);
    if (!code && *size) *image = base_heap_take(d->head.heap, *size + 1);
    if (!code && *size && !*image) {
        base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for program %s", job->label);
        goto done;
    }
    if (!code && *image) code = d->ptx ? d->c.ptx(text, *image) : d->c.code(text, *image);
    if (!code && *image) goto done;
    base_heap_give(d->head.heap, *image, *image ? *size + 1 : 0);
    *image = NULL;
    base_fail(&job->error, BERYL_DEVICE, "%s: the compiler gives no code (%d)", job->label, code);
done:
    d->c.drop(&text);
    return *image != NULL;
}

static bool find_function(cuda *d, driver_job *job, cuda_module module) {
    cuda_function function = NULL;
    int code = d->f.module_function(&function, module, job->entry);
    if (code || !function) {
        base_fail(&job->error, BERYL_DEVICE, "%s: it has no kernel called %.60s (%d)", job->label,
                  job->entry, code);
        return false;
    }
    uint64_t want = (uint64_t)job->workgroup[0] * job->workgroup[1] * job->workgroup[2];
    int most = 0;
    code = d->f.function_attribute(&most, CUDA_FUNCTION_GROUP_SIZE, function);
    if (!code && most > 0 && (uint64_t)most < want) {
        base_fail(&job->error, BERYL_UNSUPPORTED,
                  "%s: workgroups of %llu, with its registers %s allows %d", job->label,
                  (unsigned long long)want, d->head.caps.name, most);
        return false;
    }
    if (job->launch_bytes) {
        code = d->f.function_allow ? d->f.function_allow(function, CUDA_FUNCTION_LAUNCH_BYTES,
                                                         (int)job->launch_bytes)
                                   : CUDA_NO_MEMORY;
        if (code) {
            base_fail(&job->error, BERYL_UNSUPPORTED, "%s: %u bytes of workgroup memory (%d)",
                      job->label, (unsigned)job->launch_bytes, code);
            return false;
        }
    }
    job->result[1] = function;
    return true;
}

static bool load_image(void *user, driver_job *job, const driver_cache_key *key, const void *image,
                       size_t size, beryl_error *error) {
    cuda *d = user;
    cuda_module module = NULL;
    (void)key, (void)size;
    if (cuda_check(d, d->f.module_load(&module, image), job->label, error)) return false;
    job->result[0] = module;
    return true;
}

bool cuda_compile(void *user, driver_job *job) {
    static const driver_maker maker = {make_image, load_image};
    cuda *d = user;
    driver_cache_key key;
    if (cuda_lost(d, &job->error)) return false;
    cuda_use(d);
    key_of(d, job, &key);
    return driver_compile_kept(&d->compiler, job, &key, &maker) &&
           find_function(d, job, job->result[0]);
}

void cuda_discard(void *user, driver_job *job) {
    cuda *d = user;
    if (!job->result[0]) return;
    cuda_use(d);
    d->f.module_drop(job->result[0]); /* never launched */
    job->result[0] = NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

beryl_status cuda_program_make(device *head, device_program_item *item,
                               const device_program_desc *desc, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = cuda_lost(d, error);
    if (status) return status;
    ((cuda_program *)item)->launch_bytes = desc->launch_bytes;
    cuda_program *program = (cuda_program *)item;
    status = driver_job_make(&d->compiler, item, desc, head->no_cache, &program->job, error);
    program->waits = !status && strstr(program->job->source, "griddepcontrol.wait");
    return status;
}

beryl_status cuda_program_status(device *head, device_program_item *item, beryl_error *error) {
    cuda *d = (cuda *)head;
    cuda_program *program = (cuda_program *)item;
    beryl_status status = cuda_lost(d, error);
    if (status || program->function) return status;
    status = driver_job_status(&d->compiler, program->job, error);
    if (status) return status;
    program->module = program->job->result[0];
    program->function = program->job->result[1];
    program->job->result[0] = NULL;
    driver_job_drop(&d->compiler, program->job);
    program->job = NULL;
    return BERYL_OK;
}

void cuda_program_drop(device *head, device_program_item *item) {
    cuda *d = (cuda *)head;
    cuda_program *program = (cuda_program *)item;
    driver_job_drop(&d->compiler, program->job);
    if (!program->module) return;
    cuda_graphs_forget(d, program);
    cuda_garbage_add(d, 0, program->module);
}
