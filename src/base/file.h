/* file.h - files, sources, folders. wasm builds have the memory source, and whole small files where
 * JavaScript keeps them. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/memory.h"

/* A regular file as a source. It is read and never mapped, so that whatever happens to it is a
 * status and no signal: a read is IO if the file has not the size and the time of its last
 * change that it had when it was opened, and so is every later one. A file that was renamed over
 * or removed stays as it was. Several threads may read at once. */
beryl_status base_source_open_file(base_heap *heap, const char *path, beryl_source *source,
                                   beryl_error *error);
/* Such a source, whose reads may be shared among threads. */
bool base_source_is_file(const beryl_source *source);
/* The range will be read soon: where it is a file's, the system may begin. */
void base_source_expect(const beryl_source *source, uint64_t offset, uint64_t size);
/* A failed read as an error: a file is named with what happened to it, of any other source
 * `name` and the status are told. */
beryl_status base_source_fail(const beryl_source *source, const char *name, beryl_status status,
                              uint64_t at, beryl_error *error);
/* Borrowed bytes as a source. */
beryl_source base_source_of_memory(const void *data, size_t size);
/* Range check without overflow: is [offset, offset + size) inside total? */
bool base_range_inside(uint64_t offset, uint64_t size, uint64_t total);

/* The whole file and a NUL: base_heap_give with *size + 1. BAD_INPUT: longer than `limit`, or no
 * regular file. */
beryl_status base_file_read(base_heap *heap, const char *path, size_t limit, char **data,
                            size_t *size, beryl_error *error);
/* Writes beside the file and renames, so that a reader never sees half a file. */
beryl_status base_file_write(const char *path, const void *data, size_t size, beryl_error *error);
/* The same piece by piece, as a sink; closing it with `whole` renames. What went wrong is logged
 * where a log is given. */
beryl_status base_sink_open_file(base_heap *heap, const beryl_log *log, const char *path,
                                 beryl_sink *sink, beryl_error *error);
bool base_file_exists(const char *path);
/* with parents; new ones are this user's alone */
beryl_status base_folder_make(const char *path, beryl_error *error);
/* Calls `each` with the name of every entry but "." and "..", sorted. NOT_FOUND: no such folder. */
beryl_status base_folder_list(base_heap *heap, const char *path,
                              void (*each)(void *user, const char *name, bool is_folder),
                              void *user, beryl_error *error);
/* NULL: not set or empty; wasm has a cache folder alone */
const char *base_environment(const char *name);
/* The folder of the running program, NUL-terminated and without a last slash; false: not known. */
bool base_program_folder(char *path, size_t size);

#endif
