/*
 * session_mark.c: device, inode, size and time of a file, taken and compared.
 *
 * Saving gives a file another inode or another size, and always a later time. Between the comparison
 * and the save that follows nothing is locked: two that save in the same millisecond may still meet,
 * and then the later one wins, whole.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/session_mark.h"

#include <sys/stat.h>

#include "report.h"

session_mark session_mark_take(const char *path)
{
    struct stat file;
    if (lstat(path, &file) != 0) {
        return (session_mark){.is_there = false};
    }
    return (session_mark){.is_there = true,
                          .device = (uint64_t)file.st_dev,
                          .inode = (uint64_t)file.st_ino,
                          .size = (uint64_t)file.st_size,
                          .seconds = file.st_mtim.tv_sec,
                          .nanoseconds = file.st_mtim.tv_nsec};
}

cellar_status session_mark_check(const session_mark *mark, const char *path, cellar_error *error)
{
    const session_mark now = session_mark_take(path);
    if (!now.is_there) {
        return CELLAR_OK; /* removed: nothing is lost by saving */
    }
    if (!mark->is_there) {
        return report(error, CELLAR_MISMATCH, -1,
                      "another program made this file meanwhile, so the session is not saved");
    }
    if (now.device != mark->device || now.inode != mark->inode || now.size != mark->size ||
        now.seconds != mark->seconds || now.nanoseconds != mark->nanoseconds) {
        return report(error, CELLAR_MISMATCH, -1,
                      "another program saved to this file meanwhile, so the session is not saved");
    }
    return CELLAR_OK;
}
