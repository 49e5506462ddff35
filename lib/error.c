/*
 * error.c: status texts and the filling of cellar_error.
 *
 * The texts come from the one list in cellar.h, so a status cannot be without one. A message that is
 * too long is cut, never written past its end; callers therefore put what and where first and advice
 * last.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

const char *cellar_status_text(cellar_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case name:                                                                                     \
        return text;
        CELLAR_STATUSES(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *cellar_reason_text(cellar_reason reason)
{
    switch (reason) {
#define REASON_TEXT(name, value, text)                                                             \
    case name:                                                                                     \
        return text;
        CELLAR_REASONS(REASON_TEXT)
#undef REASON_TEXT
    }
    return "unknown reason";
}

cellar_reason cl_error_reason(cellar_status status)
{
    switch (status) {
    case CELLAR_INVALID:
        return CELLAR_REASON_ARGUMENT;
    case CELLAR_FULL:
        return CELLAR_REASON_NO_CELLS;
    case CELLAR_REPLAY:
        return CELLAR_REASON_POSITION_GONE;
    case CELLAR_REFUSED:
        return CELLAR_REASON_POSITION_HELD;
    case CELLAR_BUSY:
        return CELLAR_REASON_STEP_OPEN;
    case CELLAR_NO_MEMORY:
        return CELLAR_REASON_ALLOCATOR;
    case CELLAR_CORRUPT:
        return CELLAR_REASON_INVARIANT;
    case CELLAR_IO:
        return CELLAR_REASON_STORE;
    default:
        return CELLAR_REASON_NONE;
    }
}

const char *cellar_version(void)
{
#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
    return VERSION_TEXT(CELLAR_VERSION_MAJOR, CELLAR_VERSION_MINOR, CELLAR_VERSION_PATCH);
}

cellar_status cl_error_set(cellar_error *error, cellar_status status, cellar_reason reason,
                           int64_t at, const char *format, ...)
{
    if (error) {
        error->status = status;
        error->reason = reason;
        error->at = at;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

cellar_status cl_error_no_memory(cellar_error *error, const char *what, size_t size)
{
    return cl_error_set(error, CELLAR_NO_MEMORY, CELLAR_REASON_ALLOCATOR, -1,
                        "no memory for %s (%zu bytes)", what, size);
}
