/*
 * fields.h: read the members of a JSON object into typed variables.
 *
 * A member that is absent or null leaves the variable as it is. The first one that is of another type, or out of
 * range, is noted with its name and what was expected; the rest is then read as usual, and whoever reads asks once at the
 * end. Members that nobody asks for are ignored.
 */
#ifndef APP_FIELDS_H
#define APP_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

typedef struct fields {
    const json_t *object;
    const char *within; /* put before names in messages ("messages[2]."); NULL: nothing */
    bool is_wrong;
    char param[96];    /* then: which */
    char message[256]; /* and what is wrong with it */
} fields;

fields fields_of(const json_t *object);

/* The member, if it is there and not null; else NULL. */
const json_t *fields_get(const fields *f, const char *name);

void fields_flag(fields *f, const char *name, bool *value);
void fields_integer(fields *f, const char *name, int64_t *value, int64_t least, int64_t most);
void fields_number(fields *f, const char *name, double *value, double least, double most);
/* NULL: it is not there (or wrong). */
const json_t *fields_text(fields *f, const char *name);
const json_t *fields_array(fields *f, const char *name);
const json_t *fields_object(fields *f, const char *name);

/* Note it. `expected` is a format. */
void fields_wrong(fields *f, const char *name, const char *expected, ...)
    __attribute__((format(printf, 3, 4)));

/* What kind of value it is, for a message: "a text", "a number", ... */
const char *fields_kind(const json_t *value);

#endif /* APP_FIELDS_H */
