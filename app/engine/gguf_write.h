/*
 * gguf_write.h: write a GGUF file that is another one with tensors of other types.
 *
 * A gguf_write is a file that does not exist yet: bytes go to a temporary file in the same folder,
 * which takes its name only when everything has been written and is on the disk (gguf_write_commit).
 * Whatever happens before, there is no file of that name, or the old one as it was; only a program
 * that is killed leaves the temporary file, ".cellar-" and six letters.
 *
 * Failures are CELLAR_IO with the system's reason, or CELLAR_NO_MEMORY.
 */
#ifndef APP_GGUF_WRITE_H
#define APP_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"

typedef struct gguf_write gguf_write;

/*
 * Begin. A file that is there already is CELLAR_INVALID unless `replaces`; anything that is no regular
 * file always is. *out is the caller's, for gguf_write_close.
 */
cellar_status gguf_write_open(const char *path, bool replaces, gguf_write **out,
                              cellar_error *error);

/* Append n bytes. */
cellar_status gguf_write_bytes(gguf_write *w, const void *bytes, size_t n, cellar_error *error);

/* Append zero bytes up to byte `to` of the file. */
cellar_status gguf_write_pad(gguf_write *w, uint64_t to, cellar_error *error);

/* What differs from the file that is copied. */
typedef struct gguf_write_changes {
    const uint32_t *types;         /* [tensors] their new types */
    uint32_t file_type;            /* for general.file_type */
    uint32_t quantization_version; /* for general.quantization_version; 0: as it was */
} gguf_write_changes;

/*
 * Append everything before the tensor data: the keys of `file` byte for byte but for the two above, which
 * are added where they are missing, and the table of tensors. offsets [tensors] become the places
 * where the data of each tensor must begin, in the table's order, aligned as in `file`; *size that of
 * the whole file. CELLAR_INVALID: there are no tensors, or a type does not suit a tensor's rows.
 */
cellar_status gguf_write_head(gguf_write *w, const gguf_file *file,
                              const gguf_write_changes *changes, uint64_t *offsets, uint64_t *size,
                              cellar_error *error);

/* Hand over what has been written so far to the system, so that gguf_write_name can be opened. */
cellar_status gguf_write_flush(gguf_write *w, cellar_error *error);
/* The temporary file. */
const char *gguf_write_name(const gguf_write *w);

/* Make it the file that was asked for. */
cellar_status gguf_write_commit(gguf_write *w, cellar_error *error);

/* Free; what was not committed is gone. NULL is allowed. */
void gguf_write_close(gguf_write *w);

#endif /* APP_GGUF_WRITE_H */
