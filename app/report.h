/*
 * report.h: fill in a cellar_error, in one line, for the program's own parts.
 *
 * The program reports failures as the library does: a status as the result, and what, where and
 * what to do in the caller's cellar_error (which may be NULL).
 */
#ifndef APP_REPORT_H
#define APP_REPORT_H

#include "cellar.h"

/* Set *error (if not NULL) and return `status`. `at` is an offset or index, -1 for nowhere. */
cellar_status report(cellar_error *error, cellar_status status, int64_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif /* APP_REPORT_H */
