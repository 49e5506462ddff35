/*
 * json_text.h: texts of any bytes as JSON, for all commands that print it.
 *
 * JSON wants UTF-8 and a terminal wants no controls; bytes from a file promise neither. So a byte that
 * is not UTF-8 becomes U+FFFD, and a document is printed as ASCII with \u escapes, DEL among them.
 */
#ifndef APP_JSON_TEXT_H
#define APP_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* A JSON string; *is_lossy (may be NULL) becomes true if something had to be replaced. NULL: no memory. */
json_t *json_text(const char *bytes, size_t n, bool *is_lossy);

/*
 * Print a value on standard output: `indent` columns for each level, 0: on one line. No line feed at
 * the end. Without memory (also if the value is NULL) `null` stands in its place.
 */
void json_text_print(const json_t *value, size_t indent);

#endif /* APP_JSON_TEXT_H */
