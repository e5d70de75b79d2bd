/* error.h - how messages are made: once, where the cause is known. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "beryl.h"

/* Fills *error (NULL is fine) and gives `code` back, so that `return base_fail(...)` reads well. */
beryl_status base_fail(beryl_error *error, beryl_status code, const char *message, ...)
    __attribute__((format(printf, 3, 4)));
beryl_status base_fail_at(beryl_error *error, beryl_status code, uint64_t at, const char *message,
                          ...) __attribute__((format(printf, 4, 5)));
/* "out of host memory" */
beryl_status base_no_memory(beryl_error *error);
void base_log(const beryl_log *log, beryl_log_level level, const char *message, ...)
    __attribute__((format(printf, 3, 4)));

#endif
