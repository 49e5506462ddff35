/*
 * sort.h: sort numbers in place, without asking anybody for memory.
 *
 * The C library's qsort may allocate; nothing here may, because sweeps are built while a micro-batch is
 * computed and all memory goes through the caller's allocator. Heapsort: n log n in the worst
 * case, whatever the input.
 */
#ifndef CL_SORT_H
#define CL_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Let items[root] sink to where it belongs in the heap of n items. */
static inline void cl_sort_sink(int64_t *items, size_t root, size_t n)
{
    int64_t item = items[root];
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= n) break;
        if (child + 1 < n && items[child + 1] > items[child]) child++;
        if (items[child] <= item) break;
        items[root] = items[child];
        root = child;
    }
    items[root] = item;
}

/* Rising order. */
static inline void cl_sort(int64_t *items, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        cl_sort_sink(items, i, n);
    while (n > 1) {
        int64_t largest = items[0];
        items[0] = items[--n];
        items[n] = largest;
        cl_sort_sink(items, 0, n);
    }
}

#endif /* CL_SORT_H */
