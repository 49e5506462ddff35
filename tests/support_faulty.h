/*
 * support_faulty.h: an allocator and a store for rows that fail when a test says so.
 *
 * Both are plain heap memory otherwise. The store has no addresses, so that every row goes through its
 * calls. Counters are global to the test program, which has one thread.
 */
#ifndef SUPPORT_FAULTY_H
#define SUPPORT_FAULTY_H

#include <cellar.h>

/* Allocations, and calls of a store, that still succeed; < 0 (as at first): all. */
extern int faulty_allocations_left, faulty_store_calls_left;

cellar_allocator faulty_allocator(void);
cellar_row_store faulty_store(void);

#endif /* SUPPORT_FAULTY_H */
