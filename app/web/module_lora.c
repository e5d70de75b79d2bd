/* module_lora.c - adapters, in the full module, for full_engine.ts. What cannot be done while runs
 * are under way is PENDING: JavaScript calls again once one has ended. */
#include "module.h"

#include <string.h>

EXPORT(adapter_open)
uint32_t module_adapter_open(frame *f, const void *data, uint32_t size, const char *config);
EXPORT(adapter_close) void module_adapter_close(beryl_adapter *a);
EXPORT(session_adapters)
uint32_t module_session_adapters(frame *f, beryl_session *s, beryl_adapter *const *adapters,
                                 const float *scales, uint32_t n);

/* config: of PEFT's form the text of adapter_config.json; "": none. */
uint32_t module_adapter_open(frame *f, const void *data, uint32_t size, const char *config) {
    beryl_adapter *a = NULL;
    frame_begin(f);
    const size_t config_size = strlen(config);
    const beryl_adapter_options o = {.size = sizeof o,
                                     .data = data,
                                     .data_size = size,
                                     .config = config_size ? config : NULL,
                                     .config_size = config_size};
    const beryl_status status = beryl_adapter_open(f->engine, &o, &a, &f->error);
    return frame_give_thing(f, status, a);
}

void module_adapter_close(beryl_adapter *a) {
    beryl_adapter_close(a);
}

uint32_t module_session_adapters(frame *f, beryl_session *s, beryl_adapter *const *adapters,
                                 const float *scales, uint32_t n) {
    frame_begin(f);
    return frame_ended(f, beryl_session_adapters(s, adapters, scales, n, &f->error));
}
