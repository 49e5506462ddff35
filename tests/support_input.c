/*
 * support_input.c: bytes as choices. See support_input.h.
 *
 * One byte a choice, so that a fuzzer that changes a byte changes one thing. A byte of 0 is always the
 * plain choice: an input that ends early ends quietly.
 */
#include "support_input.h"

#include <stdio.h>
#include <stdlib.h>

uint8_t input_byte(input *in)
{
    return in->at < in->size ? in->data[in->at++] : 0;
}

uint32_t input_below(input *in, uint32_t n)
{
    return input_byte(in) % n;
}

bool input_one_in(input *in, uint32_t n)
{
    return input_byte(in) % n == n - 1;
}

int32_t input_number(input *in, uint32_t n)
{
    static const int32_t edges[] = {-1,      -2,  INT32_MIN, INT32_MAX, INT32_MAX - 1,
                                    1 << 30, -64, 1000};
    uint8_t byte = input_byte(in);
    return byte < 248 ? (int32_t)(byte % n) : edges[byte - 248];
}

static const char *its_name;
static uint64_t its_number;

void input_name(const char *name, uint64_t number)
{
    its_name = name;
    its_number = number;
}

void input_demand(bool holds, const char *what, const char *file, int line)
{
    if (holds) return;
    if (its_name) fprintf(stderr, "%s %llu: ", its_name, (unsigned long long)its_number);
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
