/*
 * support_input.h: choices read from bytes, and demands, for fuzz targets.
 *
 * A fuzzer varies bytes; a target turns them into choices. Behind the end every byte is 0, so that each
 * prefix of an input is an input. A demand that does not hold says where and ends the process, which is
 * how fuzz targets report.
 */
#ifndef SUPPORT_INPUT_H
#define SUPPORT_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct input {
    const uint8_t *data;
    size_t size, at;
} input;

uint8_t input_byte(input *in);

/* 0..n-1. */
uint32_t input_below(input *in, uint32_t n);

/* True for one byte in n. Never behind the end. */
bool input_one_in(input *in, uint32_t n);

/* Small numbers mostly; the top of the byte's range stands for the edges of the type. */
int32_t input_number(input *in, uint32_t n);

/* What a failing demand names beside itself: which input is being played. */
void input_name(const char *name, uint64_t number);

void input_demand(bool holds, const char *what, const char *file, int line);

#define DEMAND(condition) input_demand(condition, #condition, __FILE__, __LINE__)

#endif /* SUPPORT_INPUT_H */
