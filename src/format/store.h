/* store.h - from a model's name to its files: the built-in model, a path, Beryl's own folder,
 * Ollama's store.
 *
 * Reads folders and manifests, never a model. There is no download: a name that is nowhere is
 * NOT_FOUND with the places that were searched and what to do. Names and digests come from outside,
 * so both are checked against a narrow grammar before they become part of a path. */
#ifndef FORMAT_STORE_H
#define FORMAT_STORE_H

#include "base/memory.h"

typedef struct format_model { /* all text lies in the caller's arena */
    const char *name;         /* as one would ask for it again */
    const char *path;         /* the GGUF file (of a split one: the first part) */
    const char *projector;    /* GGUF of the vision and audio towers, or NULL */
    const char *params;       /* JSON object of sampling defaults from Ollama's store, or NULL */
    const char *source;       /* "built-in", "file", "beryl", "ollama" */
} format_model;

/* In this order: NULL or "" is the built-in model (share/beryl/models/default.gguf beside the
 * program's prefix, else of the prefix that it was compiled for, else ./models/default.gguf); a
 * path that exists; NAME or NAME.gguf in Beryl's own folder ($BERYL_MODELS, else
 * $XDG_DATA_HOME/beryl/models, else ~/.local/share/beryl/models); a name in an Ollama store
 * ($OLLAMA_MODELS, ~/.ollama/models, /usr/share/ollama/.ollama/models). A text model "NAME.gguf"
 * takes as projector a "NAME.mmproj.gguf" beside it; else, of files there that begin with
 * "mmproj" and end in ".gguf", the one whose name goes on longest as NAME begins
 * ("mmproj-NAME-F16.gguf"), the first in order of several ("mmproj-BF16.gguf" before
 * "mmproj-F16.gguf"). */
beryl_status format_store_find(base_arena *arena, const char *name, format_model *found,
                               beryl_error *error);

/* Calls `each` for every model that can be asked for by name: built-in, own folder, Ollama. What
 * cannot be read is left out. The texts are borrowed until `each` returns. */
beryl_status format_store_list(base_heap *heap,
                               void (*each)(void *user, const beryl_model_info *model), void *user,
                               beryl_error *error);

#endif
