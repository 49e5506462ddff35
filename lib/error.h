/*
 * error.h: how a failure is reported inside the library.
 *
 * Every operation has the shape: check arguments, reserve (may fail), do (cannot fail). CL_FAIL
 * leaves the first two parts with a status and a message; CL_TRY passes a failure on. Nothing is
 * allocated and nothing is remembered: the message lives in the caller's cellar_error.
 */
#ifndef CL_ERROR_H
#define CL_ERROR_H

#include "cellar.h"

/* Fill *error (if not NULL) and return `status`. */
cellar_status cl_error_set(cellar_error *error, cellar_status status, cellar_reason reason,
                           int64_t at, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The reason that a status has when nothing more is known. */
cellar_reason cl_error_reason(cellar_status status);

#define CL_FAIL(error, status, at, ...)                                                            \
    return cl_error_set(error, status, cl_error_reason(status), at, __VA_ARGS__)

#define CL_FAIL_BECAUSE(error, status, reason, at, ...)                                            \
    return cl_error_set(error, status, reason, at, __VA_ARGS__)

#define CL_TRY(call)                                                                               \
    do {                                                                                           \
        cellar_status status_of_call = (call);                                                     \
        if (status_of_call != CELLAR_OK) return status_of_call;                                    \
    } while (0)

/* The one way to say that the allocator failed. */
cellar_status cl_error_no_memory(cellar_error *error, const char *what, size_t size);

#endif /* CL_ERROR_H */
