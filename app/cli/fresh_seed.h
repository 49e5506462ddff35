/*
 * fresh_seed.h: a seed for somebody who gave none.
 *
 * It is different each time, and short enough to be typed again by whoever wants the same text once
 * more. It comes from the system's source of random numbers, or where there is none from clock and
 * process.
 */
#ifndef APP_FRESH_SEED_H
#define APP_FRESH_SEED_H

#include <stdint.h>

uint64_t fresh_seed(void);

#endif /* APP_FRESH_SEED_H */
