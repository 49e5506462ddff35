/*
 * id_list.h: token ids in a block that grows by doubling.
 *
 * Start with all zeros. The block belongs to whoever holds the list, and goes out to the caller of
 * tokenizer_encode as it is. Appending fails only for want of memory and then changes nothing.
 */
#ifndef APP_ID_LIST_H
#define APP_ID_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cellar.h"

typedef struct id_list {
    cellar_token *ids; /* [capacity], malloc'ed */
    size_t n, capacity;
} id_list;

/* false: no memory, the list is as it was. */
static inline bool id_list_append(id_list *list, cellar_token id)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity < 32 ? 32 : list->capacity * 2;
        if (capacity > SIZE_MAX / sizeof *list->ids) {
            return false;
        }
        cellar_token *ids = realloc(list->ids, capacity * sizeof *ids);
        if (ids == NULL) {
            return false;
        }
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return true;
}

#endif /* APP_ID_LIST_H */
