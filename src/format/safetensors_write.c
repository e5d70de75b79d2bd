/* safetensors_write.c - the header of a safetensors file. */
#include "format/out.h"
#include "format/safetensors.h"

void format_safetensors_write(const format_safetensor *tensors, size_t n,
                              const base_view (*metadata)[2], size_t n_metadata, base_text *out) {
    base_text text;
    uint64_t at = 0;
    base_text_init(&text, out->heap);
    base_text_print(&text, "{\"__metadata__\":{");
    for (size_t i = 0; i < n_metadata; i++) {
        if (i) base_text_add(&text, ",", 1);
        base_json_write_string(&text, metadata[i][0].data, metadata[i][0].size);
        base_text_add(&text, ":", 1);
        base_json_write_string(&text, metadata[i][1].data, metadata[i][1].size);
    }
    base_text_add(&text, "}", 1);
    for (size_t i = 0; i < n; i++) {
        const format_safetensor *t = &tensors[i];
        uint64_t size = base_type_block_bytes(t->type);
        base_text_add(&text, ",", 1);
        base_json_write_string(&text, t->name.data, t->name.size);
        base_text_print(&text, ":{\"dtype\":\"%s\",\"shape\":[", base_type_name(t->type));
        for (uint32_t k = 0; k < t->n_dim; k++) {
            base_text_print(&text, k ? ",%u" : "%u", t->dim[k]);
            size *= t->dim[k];
        }
        base_text_print(&text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                        (unsigned long long)(at + size));
        at += size;
    }
    base_text_add(&text, "}", 1);
    while (text.size % 8 && !text.failed) base_text_add(&text, " ", 1);
    format_out_number(out, text.size, 8);
    base_text_add(out, text.data, text.size);
    out->failed |= text.failed;
    base_text_fini(&text);
}
