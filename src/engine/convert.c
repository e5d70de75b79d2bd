/* convert.c - adapters from one form to another: read whole, written part by part. */
#include "base/error.h"
#include "engine/engine.h"
#include "format/lora_write.h"

#include <string.h>

beryl_status engine_adapter_file_open(base_heap *heap, const char *path, engine_adapter_file *f,
                                      beryl_error *error) {
    base_arena arena;
    beryl_error why = {0};
    *f = (engine_adapter_file){0};
    base_arena_init(&arena, heap);
    beryl_status status = engine_adapter_files(heap, &arena, path, &f->data, &f->size, &f->config,
                                               &f->config_size, error);
    if (!status) {
        status =
            format_lora_read(heap, f->data, f->size, f->config, f->config_size, &f->lora, &why);
        if (status) base_fail_at(error, status, why.at, "'%.120s': %.340s", path, why.message);
    }
    base_arena_fini(&arena);
    if (status) engine_adapter_file_close(heap, f);
    return status;
}

void engine_adapter_file_close(base_heap *heap, engine_adapter_file *f) {
    format_lora_fini(&f->lora);
    base_heap_give(heap, f->data, f->size + 1);
    base_heap_give(heap, f->config, f->config_size + 1);
    *f = (engine_adapter_file){0};
}

bool engine_adapter_form(const char *name, format_lora_form *form) {
#define X(id, text) \
    if (name && !strcmp(name, text)) return *form = LORA_FORM_##id, true;
    FORMAT_LORA_FORM_LIST(X)
#undef X
    return false;
}

bool engine_float_type(const char *name, base_type *type) {
    static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    *type = TYPE_COUNT;
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, base_type_name(types[i]))) *type = types[i];
    return !name || *type != TYPE_COUNT;
}

beryl_status beryl_adapter_convert(const beryl_convert_options *options, beryl_error *error) {
    beryl_convert_options o = {0};
    format_lora_write_desc desc = {0};
    if (!options || options->size < sizeof options->size || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE, "beryl_adapter_convert needs options");
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!o.from || !o.to || !engine_adapter_form(o.form, &desc.form) ||
        !engine_float_type(o.type, &desc.type))
        return base_fail(error, BERYL_MISUSE,
                         "beryl_adapter_convert needs two paths, a form (peft, gguf, rullama) and "
                         "a type (F32, F16, BF16) or none");
    base_heap heap;
    engine_adapter_file f;
    base_heap_init(&heap, &o.allocator);
    beryl_status status = engine_adapter_file_open(&heap, o.from, &f, error);
    if (status) return status;
    desc.lora = &f.lora;
    status = format_lora_write(&heap, &desc, o.to, error);
    engine_adapter_file_close(&heap, &f);
    return status;
}
