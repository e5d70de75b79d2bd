/* lora_write.h - adapters to files, in the forms that lora.h reads.
 *
 * Refuses by name what a form cannot say: the head in GGUF files (no name for it), per-layer
 * matrices and experts in rullama's, ranks that differ in rullama's and among experts in PEFT's,
 * values that the type cannot hold. Where a form has one alpha for all, a part with another has the
 * difference in its B, as F32. */
#ifndef FORMAT_LORA_WRITE_H
#define FORMAT_LORA_WRITE_H

#include "format/lora.h"

typedef struct format_lora_write_desc {
    const format_lora *lora; /* borrowed; its form means nothing here. A part made by hand needs
                                target, layer, n_expert, rank, in, out, factor and of its halves
                                type, data and stride; the arena is not used */
    format_lora_form form;
    base_type type;   /* of the file's values: F32, F16, BF16; TYPE_COUNT: as they are */
    const char *base; /* of PEFT's form: base_model_name_or_path; NULL: null */
    const char *name; /* of GGUF files: general.name; NULL: none */
    bool alone;       /* of PEFT's form the tensors without a configuration: path is their file */
} format_lora_write_desc;

/* path: of PEFT's form the folder, made if it is not there, with adapter_config.json and
 * adapter_model.safetensors; else the file. Files get their names only once they are whole. */
beryl_status format_lora_write(base_heap *heap, const format_lora_write_desc *desc,
                               const char *path, beryl_error *error);
/* The same to sinks, owned, which take everything at once. config: of PEFT's form alone, where
 * adapter_config.json goes; else NULL. */
beryl_status format_lora_write_to(base_heap *heap, const format_lora_write_desc *desc,
                                  const beryl_sink *file, const beryl_sink *config,
                                  beryl_error *error);

#endif
