/*
 * greedy.c: the longest token at each place.
 *
 * A trie would walk byte by byte; the sorted texts of prefix_set.h give the same answer by one
 * binary search, in much less memory. Fails only for want of memory.
 */
#include "tokenizer/greedy.h"

#include "report.h"

cellar_status greedy_encode(const prefix_set *tokens, cellar_token unknown, const char *text,
                            size_t length, id_list *ids, cellar_error *error)
{
    for (size_t at = 0; at < length;) {
        const int32_t entry = prefix_set_find(tokens, text + at, length - at);
        const cellar_token id = entry >= 0 ? tokens->entries[entry].id : unknown;
        if (id >= 0 && !id_list_append(ids, id)) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                          (unsigned long long)length);
        }
        at += entry >= 0 ? tokens->vocabulary->texts[id].length : 1;
    }
    return CELLAR_OK;
}
