/*
 * session_mark.h: is the file of a session still the one that was looked at?
 *
 * Two runs may go on with one session at the same time. Each saves what it has made of it at its end,
 * and the second would take away what the first has saved. So the file is marked when it is opened,
 * and whoever finds another one there when it is time to save is refused: what is on the disk already
 * is safer than what is not.
 */
#ifndef APP_SESSION_MARK_H
#define APP_SESSION_MARK_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"

typedef struct session_mark {
    bool is_there;
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* when it was written */
} session_mark;

/* What stands there now; nothing, if it cannot be looked at. */
session_mark session_mark_take(const char *path);

/* CELLAR_MISMATCH: what stands there now is not what was marked. */
cellar_status session_mark_check(const session_mark *mark, const char *path, cellar_error *error);

#endif /* APP_SESSION_MARK_H */
